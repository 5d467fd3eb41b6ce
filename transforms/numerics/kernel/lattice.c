/* What `lattice.quantize`, `lattice.clip_l2` and `lattice.scaled` compute of one row, bit for bit. Compiled without
 * contraction: a product that is not exact is never part of another operation. Where squared norms matter they are
 * exact, being integers below 2**53, so their order is free.
 */
#ifndef LEVEL
#include <math.h>
#include <stdint.h>
#include <string.h>
#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define NAME(f) JOIN(f, LEVEL)
#define ARGUMENTS const void *points, int64_t wide, int64_t n, int64_t d, const double *center, double scale, double low, \
    double high, double norm, double *scratch, int32_t *integers, uint8_t *left
#define GIVEN points, wide, n, d, center, scale, low, high, norm, scratch, integers, left
#define SCALED const void *values, int64_t whole, int64_t n, int64_t d, const double *factors, int64_t divided, \
    double *scaled
#define SCALED_GIVEN values, whole, n, d, factors, divided, scaled
#define PUBLIC __attribute__((visibility("default")))
#if defined(__x86_64__)
#define TARGET __attribute__((target("avx512f,avx512dq,avx512vl,avx512bw,avx512cd,avx2,fma")))
#define LEVEL 4
#include __FILE__
#undef LEVEL
#undef TARGET
#define TARGET __attribute__((target("avx2,fma")))
#define LEVEL 3
#include __FILE__
#undef LEVEL
#undef TARGET
#endif
#define TARGET
#define LEVEL 1
#include __FILE__

/* Rows as lattice integers, shape (n, d); `wide` says that they are float64, else float32. Coordinates are clipped to
 * [low, high], centered, scaled and truncated, and rows longer than `norm` are shrunk into it. `left[i]` is 1 for a row
 * that is left to NumPy, since its squared norm is not exact. `scratch` has room for d numbers.
 */
PUBLIC void dapple_quantize(int64_t level, ARGUMENTS) {
#if defined(__x86_64__)
  if (level == 4) { quantize_4(GIVEN); return; }
  if (level == 3) { quantize_3(GIVEN); return; }
#endif
  quantize_1(GIVEN);
}

/* values * factors, or values / factors if `divided`, truncated; shape (n, d), with a factor for each row. `whole` says
 * that values are int64, else float64.
 */
PUBLIC void dapple_scale(int64_t level, SCALED) {
#if defined(__x86_64__)
  if (level == 4) { scale_4(SCALED_GIVEN); return; }
  if (level == 3) { scale_3(SCALED_GIVEN); return; }
#endif
  scale_1(SCALED_GIVEN);
}

#else /* once per level */

/* The first factor, of those that `lattice.scale_until` tries, at which the truncated vector is no longer than `limit`.
 * A factor of zero ends the search.
 */
TARGET static double NAME(fitting)(const double *v, int64_t d, double factor, double limit) {
  for (double shrink = 1.0 - 1.0 / 1048576.0;; factor *= shrink, shrink *= shrink) {
    double left = 0;
#pragma omp simd reduction(+ : left)
    for (int64_t f = 0; f < d; f++) {
      double t = trunc(v[f] * factor);
      left += t * t;
    }
    if (left <= limit * limit) return factor;
  }
}

/* Adds x - c, shortened to `radius`, to `sums`. `squared` is the squared norm of x - c; `v` has room for d numbers. */
TARGET void NAME(shorten)(
    const double *x, const double *c, int64_t d, double squared, double radius, double *v, int64_t *sums) {
  double norm = sqrt(squared), factor = radius / (norm > 1.0 ? norm : 1.0), left = 0;
  factor = factor < 1.0 ? factor : 1.0;
#pragma omp simd reduction(+ : left)
  for (int64_t f = 0; f < d; f++) {
    double t = trunc((x[f] - c[f]) * factor);
    v[f] = t;
    left += t * t;
  }
  if (left <= radius * radius) {
    for (int64_t f = 0; f < d; f++) sums[f] += (int64_t)v[f];
    return;
  }
  for (int64_t f = 0; f < d; f++) v[f] = x[f] - c[f];
  factor = NAME(fitting)(v, d, factor, radius);
  for (int64_t f = 0; f < d; f++) sums[f] += (int64_t)trunc(v[f] * factor);
}

TARGET static void NAME(scale)(SCALED) {
  const int64_t *integers = values;
  const double *numbers = values;
  for (int64_t i = 0; i < n; i++, integers += d, numbers += d, scaled += d) {
    const double by = factors[i];
    if (whole && divided)
      for (int64_t f = 0; f < d; f++) scaled[f] = trunc((double)integers[f] / by);
    else if (whole)
      for (int64_t f = 0; f < d; f++) scaled[f] = trunc((double)integers[f] * by);
    else if (divided)
      for (int64_t f = 0; f < d; f++) scaled[f] = trunc(numbers[f] / by);
    else
      for (int64_t f = 0; f < d; f++) scaled[f] = trunc(numbers[f] * by);
  }
}

TARGET static inline double NAME(unit)(double each, double center, double scale, double low, double high) {
  each = each < low ? low : each > high ? high : each;
  return trunc((each - center) * scale);
}

TARGET static void NAME(quantize)(ARGUMENTS) {
  const float *narrow_row = points;
  const double *wide_row = points;
  for (int64_t i = 0; i < n; i++, narrow_row += d, wide_row += d, integers += d) {
    double squared = 0;
    if (wide) {
#pragma omp simd reduction(+ : squared)
      for (int64_t f = 0; f < d; f++) {
        double t = NAME(unit)(wide_row[f], center[f], scale, low, high);
        scratch[f] = t;
        squared += t * t;
      }
    } else {
#pragma omp simd reduction(+ : squared)
      for (int64_t f = 0; f < d; f++) {
        double t = NAME(unit)(narrow_row[f], center[f], scale, low, high);
        scratch[f] = t;
        squared += t * t;
      }
    }
    left[i] = !(squared <= 4503599627370496.0);
    if (left[i]) {
      memset(integers, 0, (size_t)d * sizeof *integers);
      continue;
    }
    const double factor = squared <= norm * norm ? 1.0 : NAME(fitting)(scratch, d, norm / sqrt(squared), norm);
    for (int64_t f = 0; f < d; f++) integers[f] = (int32_t)(scratch[f] * factor);
  }
}
#endif
