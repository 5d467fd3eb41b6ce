/* Sums of outer products of rows of lattice integers: the upper triangle of the sum of x x^T.
 *
 * A row's norm is at most `norm`, so no product of two of its coordinates is larger than norm**2, and sums over BLOCK
 * rows stay integers far below 2**53: any order of adding up, and fused multiplication, give the same.
 */
#ifndef LEVEL
#include <stdint.h>
#include <string.h>
#define BLOCK 64 /* rows worked on at a time */
#define FIRST 6  /* rows of a tile of the matrix; its columns are TILE, which registers hold as PARTS vectors */
#define PARTS 2
#define TILE (PARTS * WIDTH)
#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define NAME(f) JOIN(f, LEVEL)
#define ARGUMENTS const int32_t *rows, int64_t n, int64_t d, double norm, double *scratch, int64_t *total
#define GIVEN rows, n, d, norm, scratch, total
#if defined(__x86_64__)
#define TARGET __attribute__((target("avx512f,avx512dq,avx512vl,avx512bw,avx512cd,avx2,fma")))
#define LEVEL 4
#define WIDTH 8
#include __FILE__
#undef LEVEL
#undef WIDTH
#undef TARGET
#define TARGET __attribute__((target("avx2,fma")))
#define LEVEL 3
#define WIDTH 4
#include __FILE__
#undef LEVEL
#undef WIDTH
#undef TARGET
#endif
#define TARGET
#define LEVEL 1
#define WIDTH 2
#include __FILE__

/* Numbers of `scratch`: a block of rows, each wide enough for whole tiles. */
__attribute__((visibility("default"))) int64_t dapple_scatter_scratch(int64_t d) { return BLOCK * (d + 32 + FIRST); }

/* Adds outer products to the upper triangle of `total`, shape (d, d); what is below the diagonal may be anything after.
 *
 * Returns 1 if a row is longer than `norm`: what was added up until then is of no use.
 */
__attribute__((visibility("default"))) int64_t dapple_add_scatter(int64_t level, ARGUMENTS) {
#if defined(__x86_64__)
  if (level == 4) return add_scatter_4(GIVEN);
  if (level == 3) return add_scatter_3(GIVEN);
#endif
  return add_scatter_1(GIVEN);
}

#else /* once per level */
typedef double NAME(vec) __attribute__((vector_size(WIDTH * 8), aligned(8)));

/* Rows as float64, `stride` apart with zeros at their ends; whether one is longer than its bound. */
TARGET static int64_t NAME(widen)(
    const int32_t *rows, int64_t m, int64_t d, int64_t stride, double norm, double *x) {
  int64_t bad = 0;
  for (int64_t i = 0; i < m; i++, rows += d, x += stride) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t f = 0; f < d; f++) {
      double each = rows[f];
      x[f] = each;
      sum += each * each;
    }
    memset(x + d, 0, (size_t)(stride - d) * sizeof(double));
    bad |= !(sum <= norm * norm);
  }
  return bad;
}

/* A tile of the matrix over one block of rows, which is added to `total`. */
TARGET static void NAME(tile)(
    const double *x, int64_t m, int64_t stride, int64_t f, int64_t g, int64_t d, int64_t *total) {
  NAME(vec) s[FIRST][PARTS];
  memset(s, 0, sizeof s);
  for (int64_t i = 0; i < m; i++, x += stride) {
    NAME(vec) right[PARTS];
#pragma GCC unroll 4
    for (int p = 0; p < PARTS; p++) right[p] = *(const NAME(vec) *)(x + g + p * WIDTH);
#pragma GCC unroll 6
    for (int q = 0; q < FIRST; q++)
#pragma GCC unroll 4
      for (int p = 0; p < PARTS; p++) s[q][p] += x[f + q] * right[p];
  }
  const int64_t width = d - g < TILE ? d - g : TILE;
  for (int64_t q = 0; q < FIRST && f + q < d; q++)
    for (int64_t c = 0; c < width; c++) total[(f + q) * d + g + c] += (int64_t)((const double *)s[q])[c];
}

TARGET static int64_t NAME(add_scatter)(ARGUMENTS) {
  const int64_t stride = d + 32 + FIRST;
  for (int64_t start = 0; start < n; start += BLOCK) {
    const int64_t m = n - start < BLOCK ? n - start : BLOCK;
    if (NAME(widen)(rows + start * d, m, d, stride, norm, scratch)) return 1;
    for (int64_t g = 0; g < d; g += TILE)
      for (int64_t f = 0; f < d && f < g + TILE; f += FIRST) NAME(tile)(scratch, m, stride, f, g, d, total);
  }
  return 0;
}
#endif
