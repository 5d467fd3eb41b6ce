/* One pass over rows of lattice integers: bound, nearest center, sums and counts.
 *
 * It gives the integers of the NumPy path. Every score and squared norm is an integer below 2**53 (`row_pass.py` refuses
 * other centers), so any order of adding up and fused multiplication give the same. What is divided, rooted or truncated
 * is in lattice.c, which is compiled without contraction. `setup.py` has the flags; -ffast-math is never one of them.
 * Vectors are those of GCC and clang; which level a processor has is asked when the library runs.
 */
#ifndef LANES
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif
#define BLOCK 96 /* rows worked on at a time: BLOCK and every smaller block are multiples of all ROWS */
#define JOIN_(a, b, c) a##_##b##_##c
#define JOIN(a, b, c) JOIN_(a, b, c)
#define NAME(f) JOIN(f, LEVEL, LANES)
#define PUBLIC __attribute__((visibility("default")))
#define ARGUMENTS const int32_t *rows, int64_t n, int64_t d, const double *tiles, const double *bias, int64_t n_tiles, \
    int64_t bits, double norm, double radius, int64_t shortens, const double *centers, const int64_t *cells, \
    double *scratch, int64_t *sums, int64_t *inside, int64_t *outside
#define GIVEN rows, n, d, tiles, bias, n_tiles, bits, norm, radius, shortens, centers, cells, scratch, sums, inside, \
    outside

typedef void shorten_t(const double *, const double *, int64_t, double, double, double *, int64_t *);
shorten_t shorten_1, shorten_3, shorten_4;

#if defined(__x86_64__)
#define TARGET __attribute__((target("avx512f,avx512dq,avx512vl,avx512bw,avx512cd,avx2,fma")))
#define LEVEL 4
#define SHORTEN shorten_4
#define WIDTH 8
#define ROWS 12
#define LANES 8
#include __FILE__
#undef LANES
#define LANES 16
#include __FILE__
#undef LANES
#undef ROWS
#define ROWS 8
#define LANES 24
#include __FILE__
#undef LANES
#undef WIDTH
#define WIDTH 4
#define LANES 12
#include __FILE__
#undef LANES
#undef LEVEL
#undef SHORTEN
#undef WIDTH
#undef ROWS
#undef TARGET
#define TARGET __attribute__((target("avx2,fma")))
#define LEVEL 3
#define SHORTEN shorten_3
#define WIDTH 4
#define ROWS 4
#define LANES 12
#include __FILE__
#undef LANES
#undef ROWS
#define ROWS 3
#define LANES 8
#include __FILE__
#undef LANES
#define LANES 16
#include __FILE__
#undef LANES
#undef LEVEL
#undef SHORTEN
#undef WIDTH
#undef ROWS
#undef TARGET
#endif
#define TARGET
#define LEVEL 1
#define SHORTEN shorten_1
#define WIDTH 2
#define ROWS 1
#define LANES 8
#include __FILE__
#undef LANES
#define LANES 12
#include __FILE__
#undef LANES
#define LANES 16
#include __FILE__

/* SHA-256 of the sources, so that nobody calls a library that was built from others. */
PUBLIC const char *dapple_sources(void) { return DAPPLE_SOURCES; }

/* 4: AVX-512, 3: AVX2 and FMA, 1: what every processor of this kind has. */
PUBLIC int64_t dapple_level(void) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx2") &&
      __builtin_cpu_supports("fma")) return 4;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return 3;
#endif
  return 1;
}

/* Centers of a tile: as many as leave fewest lanes empty. Twelve are for where two half vectors are as fast as a whole
 * one, as on AMD's Zen 4.
 */
#define PADDED(lanes) ((size + lanes - 1) / lanes * lanes)
PUBLIC int64_t dapple_lanes(int64_t level, int64_t size) {
  int64_t halves = level == 3, best = size <= 8 ? 8 : 16;
#if defined(__x86_64__)
  halves |= level == 4 && __builtin_cpu_is("amd");
#endif
  best = halves && PADDED(12) < PADDED(best) ? 12 : best;
  return level == 4 && PADDED(24) <= PADDED(best) ? 24 : best;
}

/* Numbers of `scratch`. */
PUBLIC int64_t dapple_scratch(int64_t d) { return (BLOCK + 1) * d + 7; }

/* Adds rows to the cells of their nearest centers; `row_pass.py` says what the arguments are.
 *
 * Returns 1 if a row is longer than `norm`: what was added up until then is of no use. No row of its block has been
 * given a label by then.
 */
#define ADD(level) (lanes == 8 ? add_##level##_8(GIVEN) : lanes == 12 ? add_##level##_12(GIVEN) : add_##level##_16(GIVEN))
PUBLIC int64_t dapple_add_rows(int64_t level, int64_t lanes, ARGUMENTS) {
#if defined(__x86_64__)
  if (level == 4) return lanes == 24 ? add_4_24(GIVEN) : ADD(4);
  if (level == 3) return ADD(3);
#endif
  return ADD(1);
}

#else /* once per level and number of lanes */
typedef double NAME(vec) __attribute__((vector_size(WIDTH * 8), aligned(8)));
typedef int64_t NAME(ivec) __attribute__((vector_size(WIDTH * 8), unused));

TARGET static inline NAME(vec) NAME(larger)(NAME(vec) a, NAME(vec) b) {
#if defined(__x86_64__) && WIDTH == 8
  return (NAME(vec))_mm512_max_pd((__m512d)a, (__m512d)b);
#elif defined(__x86_64__) && WIDTH == 4
  return (NAME(vec))_mm256_max_pd((__m256d)a, (__m256d)b);
#else
  NAME(ivec) more = a > b;
  return (NAME(vec))((more & (NAME(ivec))a) | (~more & (NAME(ivec))b));
#endif
}

TARGET static inline double NAME(largest)(NAME(vec) a) {
#if defined(__x86_64__) && WIDTH >= 4
#if WIDTH == 8
  __m256d half = _mm256_max_pd(_mm512_castpd512_pd256((__m512d)a), _mm512_extractf64x4_pd((__m512d)a, 1));
#else
  __m256d half = (__m256d)a;
#endif
  __m128d pair = _mm_max_pd(_mm256_castpd256_pd128(half), _mm256_extractf128_pd(half, 1));
  return _mm_cvtsd_f64(_mm_max_sd(pair, _mm_unpackhi_pd(pair, pair)));
#else
  return a[0] > a[1] ? a[0] : a[1];
#endif
}

TARGET static inline NAME(vec) NAME(widened)(const int32_t *from) {
#if defined(__x86_64__) && WIDTH == 8
  return (NAME(vec))_mm512_cvtepi32_pd(_mm256_loadu_si256((const __m256i *)from));
#elif defined(__x86_64__) && WIDTH == 4
  return (NAME(vec))_mm256_cvtepi32_pd(_mm_loadu_si128((const __m128i *)from));
#else
  return (NAME(vec)){from[0], from[1]};
#endif
}

/* Rows as float64, with their squared norms; whether one is longer than its bound. */
TARGET static int64_t NAME(read)(const int32_t *rows, int64_t m, int64_t d, double norm, double *x, double *squared) {
  int64_t bad = 0;
  for (int64_t i = 0; i < m; i++, rows += d, x += d) {
    NAME(vec) sums = {0};
    int64_t f = 0;
    for (; f + WIDTH <= d; f += WIDTH) {
      const NAME(vec) each = NAME(widened)(rows + f);
      *(NAME(vec) *)(x + f) = each;
      sums += each * each;
    }
    double sum = 0;
    for (int w = 0; w < WIDTH; w += 2) sum += sums[w] + sums[w + 1];
    for (; f < d; f++) {
      const double each = rows[f];
      x[f] = each;
      sum += each * each;
    }
    squared[i] = sum;
    bad |= !(sum <= norm * norm);
  }
  return bad;
}

/* Best codes of ROWS rows over the centers of a tile, which stay in registers; a lane has every LANES-th center. */
TARGET static inline void NAME(score)(
    const double *x, int64_t d, const double *tile, const double *bias, int64_t first, NAME(vec) *best) {
  enum { PARTS = LANES / WIDTH };
  NAME(vec) s[ROWS][PARTS];
  for (int q = 0; q < ROWS; q++)
    for (int p = 0; p < PARTS; p++) s[q][p] = *(const NAME(vec) *)(bias + p * WIDTH);
  for (int64_t f = 0; f < d; f++) {
    NAME(vec) c[PARTS];
#pragma GCC unroll 8
    for (int p = 0; p < PARTS; p++) c[p] = *(const NAME(vec) *)(tile + f * LANES + p * WIDTH);
#pragma GCC unroll 12
    for (int q = 0; q < ROWS; q++)
#pragma GCC unroll 8
      for (int p = 0; p < PARTS; p++) s[q][p] += x[q * d + f] * c[p];
  }
#pragma GCC unroll 12
  for (int q = 0; q < ROWS; q++) {
    NAME(vec) most = s[q][0];
#pragma GCC unroll 8
    for (int p = 1; p < PARTS; p++) most = NAME(larger)(most, s[q][p]);
    best[q] = first ? most : NAME(larger)(best[q], most);
  }
}

TARGET static int64_t NAME(add)(ARGUMENTS) {
  const int64_t low = ((int64_t)1 << bits) - 1;
  int64_t block = n_tiles > 1 ? BLOCK : 4096 / d / 24 * 24;
  block = block < 24 ? 24 : block > BLOCK ? BLOCK : block;
  double own[BLOCK], codes[BLOCK];
  scratch = (double *)(((uintptr_t)scratch + 63) & ~(uintptr_t)63); /* vectors then lie in one line of the cache each */
  NAME(vec) best[BLOCK];
  for (int64_t start = 0; start < n; start += block) {
    const int64_t m = n - start < block ? n - start : block;
    const int32_t *part = rows + start * d;
    if (NAME(read)(part, m, d, norm, scratch, own)) return 1;
    const int64_t end = (m + ROWS - 1) / ROWS * ROWS;
    memset(scratch + m * d, 0, (size_t)((end - m) * d) * sizeof(double));
    for (int64_t t = 0; t < n_tiles; t++)
      for (int64_t i = 0; i < end; i += ROWS) {
        for (int64_t f = 0; !t && f < ROWS * d; f += 16) __builtin_prefetch(part + (block + i) * d + f);
        NAME(score)(scratch + i * d, d, tiles + t * d * LANES, bias + t * LANES, !t, best + i);
      }
    for (int64_t i = 0; i < m; i++) codes[i] = NAME(largest)(best[i]);
    for (int64_t i = 0; i < m; i++) { /* label and distance from the best code, then the sums */
      const int64_t code = (int64_t)codes[i], j = low - (code & low), cell = j + (cells ? cells[start + i] : 0);
      const double distance = own[i] - (double)(code >> bits);
      if (distance <= radius * radius) {
        inside[cell]++;
        if (sums) {
          int64_t *to = sums + cell * d;
          for (int64_t f = 0; f < d; f++) to[f] += part[i * d + f];
        }
      } else if (shortens) {
        outside[cell]++;
        SHORTEN(scratch + i * d, centers + j * d, d, distance, radius, scratch + BLOCK * d, sums + cell * d);
      }
    }
  }
  return 0;
}
#endif
