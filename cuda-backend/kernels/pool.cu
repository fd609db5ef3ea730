// Poolings of images [n,h,w,c] and their gradients. Each thread computes one channel, or four, of a pixel, in the order
// of the portable kernels. The memory limits all of them: with at most 64 registers, an SM of sm_87 or sm_90 holds at least 32 warps.
#include "window.cuh"

struct Pooling {
    Axis down, across;
    unsigned channels;
};

// LANES neighbouring channels. Four have 16 bytes.
template <typename T, unsigned LANES> struct __align__(sizeof(T) * LANES) Lanes {
    T of[LANES];
};

// Elements LANES * `group` and the following ones.
template <unsigned LANES, typename T> __device__ inline Lanes<T, LANES> load(const T *__restrict__ from, Index group) {
    return ((const Lanes<T, LANES> *)from)[group];
}
template <>
__device__ inline Lanes<float, 4> load(const float *__restrict__ from, Index group) {
    float4 quad = ((const float4 *)from)[group];
    return {quad.x, quad.y, quad.z, quad.w};
}
template <typename T, unsigned LANES> __device__ inline void store(T *to, Index group, const Lanes<T, LANES> &lanes) {
    ((Lanes<T, LANES> *)to)[group] = lanes;
}
__device__ inline void store(float *to, Index group, const Lanes<float, 4> &lanes) {
    ((float4 *)to)[group] = make_float4(lanes.of[0], lanes.of[1], lanes.of[2], lanes.of[3]);
}

// Number of the group of channels at a position in the images.
__device__ inline Index group_at(const Pooling &pooling, Index image, unsigned ih, unsigned iw, unsigned channel) {
    return ((image * pooling.down.input + ih) * pooling.across.input + iw) * pooling.channels + channel;
}

// True if `x` replaces `best`, the maximum so far: `x` is greater, or it is the first NaN.
template <typename T> __device__ inline bool beats(T x, T best) { return !(x <= best) && best == best; }

// The groups with the greatest element under a window, for each lane: of equals the first, of NaN the first NaN.
template <typename T, unsigned LANES>
__device__ inline Lanes<Index, LANES> greatest(const T *__restrict__ x, const Pooling &pooling, Index image, unsigned oh, unsigned ow,
                                               unsigned channel) {
    Span rows = covered_by(pooling.down, oh), columns = covered_by(pooling.across, ow);
    Index line = group_at(pooling, image, rows.first, columns.first, channel);
    Lanes<T, LANES> best = load<LANES>(x, line);
    Lanes<Index, LANES> first;
    for (unsigned lane = 0; lane < LANES; lane++) first.of[lane] = line;
#pragma unroll 1
    for (unsigned ih = rows.first; ih < rows.end; ih++) {
        Index at = line;
        for (unsigned iw = columns.first; iw < columns.end; iw++) {
            Lanes<T, LANES> values = load<LANES>(x, at);
            for (unsigned lane = 0; lane < LANES; lane++) {
                if (beats(values.of[lane], best.of[lane])) {
                    best.of[lane] = values.of[lane];
                    first.of[lane] = at;
                }
            }
            at += pooling.channels;
        }
        line += (Index)pooling.across.input * pooling.channels;
    }
    return first;
}

// The greatest element of each window. In all kernels, `groups` is the number of groups of channels of the result, and `pooling.channels`
// that of a pixel.
template <typename T, unsigned LANES>
__device__ inline void maximum(const T *__restrict__ x, T *__restrict__ y, const Pooling &pooling, Index groups) {
    for (Index at = first_element(); at < groups; at += all_threads()) {
        Index image = at;
        unsigned channel = split(image, pooling.channels), ow = split(image, pooling.across.output);
        unsigned oh = split(image, pooling.down.output);
        Span rows = covered_by(pooling.down, oh), columns = covered_by(pooling.across, ow);
        Lanes<T, LANES> best = load<LANES>(x, group_at(pooling, image, rows.first, columns.first, channel));
#pragma unroll 1
        for (unsigned ih = rows.first; ih < rows.end; ih++) {
            Index from = group_at(pooling, image, ih, columns.first, channel);
            for (unsigned iw = columns.first; iw < columns.end; iw++) {
                Lanes<T, LANES> values = load<LANES>(x, from);
                for (unsigned lane = 0; lane < LANES; lane++) {
                    if (beats(values.of[lane], best.of[lane])) best.of[lane] = values.of[lane];
                }
                from += pooling.channels;
            }
        }
        store(y, at, best);
    }
}

// The element of `values` at the position of each window's maximum in x.
template <typename T>
__device__ inline void pick(const T *__restrict__ x, const T *__restrict__ values, T *__restrict__ y, const Pooling &pooling,
                            Index groups) {
    for (Index at = first_element(); at < groups; at += all_threads()) {
        Index image = at;
        unsigned channel = split(image, pooling.channels), ow = split(image, pooling.across.output);
        unsigned oh = split(image, pooling.down.output);
        y[at] = values[greatest<T, 1>(x, pooling, image, oh, ow, channel).of[0]];
    }
}

// dx of the maximum. An element looks for the windows of which it is the maximum.
template <typename T, unsigned LANES>
__device__ inline void max_grad(const T *__restrict__ x, const T *__restrict__ dy, T *__restrict__ dx, const Pooling &pooling,
                                Index groups) {
    const Axis &down = pooling.down, &across = pooling.across;
    for (Index at = first_element(); at < groups; at += all_threads()) {
        Index image = at;
        unsigned channel = split(image, pooling.channels), iw = split(image, across.input), ih = split(image, down.input);
        Span rows = covering(down, ih), columns = covering(across, iw);
        Lanes<T, LANES> sums = {};
#pragma unroll 1
        for (unsigned oh = rows.first; oh < rows.end; oh++) {
#pragma unroll 1
            for (unsigned ow = columns.first; ow < columns.end; ow++) {
                Lanes<Index, LANES> first = greatest<T, LANES>(x, pooling, image, oh, ow, channel);
                Index window = ((image * down.output + oh) * across.output + ow) * pooling.channels + channel;
                for (unsigned lane = 0; lane < LANES; lane++) {
                    if (first.of[lane] == at) sums.of[lane] += dy[window * LANES + lane];
                }
            }
        }
        store(dx, at, sums);
    }
}

// Number of elements under a window.
template <typename T> __device__ inline T count(Span rows, Span columns) {
    return (T)((Index)(rows.end - rows.first) * (columns.end - columns.first));
}

// Average of each window.
template <typename T, unsigned LANES>
__device__ inline void average(const T *__restrict__ x, T *__restrict__ y, const Pooling &pooling, Index groups) {
    for (Index at = first_element(); at < groups; at += all_threads()) {
        Index image = at;
        unsigned channel = split(image, pooling.channels), ow = split(image, pooling.across.output);
        unsigned oh = split(image, pooling.down.output);
        Span rows = covered_by(pooling.down, oh), columns = covered_by(pooling.across, ow);
        Lanes<T, LANES> sums = {};
#pragma unroll 1
        for (unsigned ih = rows.first; ih < rows.end; ih++) {
            Index from = group_at(pooling, image, ih, columns.first, channel);
            for (unsigned iw = columns.first; iw < columns.end; iw++) {
                Lanes<T, LANES> values = load<LANES>(x, from);
                for (unsigned lane = 0; lane < LANES; lane++) sums.of[lane] += values.of[lane];
                from += pooling.channels;
            }
        }
        T number = count<T>(rows, columns);
        for (unsigned lane = 0; lane < LANES; lane++) sums.of[lane] /= number;
        store(y, at, sums);
    }
}

// dx of the average. An element takes its part of dy of each window that covers it.
template <typename T, unsigned LANES>
__device__ inline void average_grad(const T *__restrict__ dy, T *__restrict__ dx, const Pooling &pooling, Index groups) {
    const Axis &down = pooling.down, &across = pooling.across;
    for (Index at = first_element(); at < groups; at += all_threads()) {
        Index image = at;
        unsigned channel = split(image, pooling.channels), iw = split(image, across.input), ih = split(image, down.input);
        Span rows = covering(down, ih), columns = covering(across, iw);
        Lanes<T, LANES> sums = {};
#pragma unroll 1
        for (unsigned oh = rows.first; oh < rows.end; oh++) {
            Index from = ((image * down.output + oh) * across.output + columns.first) * pooling.channels + channel;
#pragma unroll 1
            for (unsigned ow = columns.first; ow < columns.end; ow++) {
                Lanes<T, LANES> gradients = load<LANES>(dy, from);
                T part = (T)1 / count<T>(covered_by(down, oh), covered_by(across, ow));
                for (unsigned lane = 0; lane < LANES; lane++) sums.of[lane] += gradients.of[lane] * part;
                from += pooling.channels;
            }
        }
        store(dx, at, sums);
    }
}

#define ENTRY extern "C" __global__ void

#define KERNELS(T, LANES, NAME)                                                                                                            \
    ENTRY max_pool2d_##NAME(unsigned *fault, unsigned step, const T *x, T *y, Pooling pooling, Index groups) {                             \
        GUARD;                                                                                                                             \
        maximum<T, LANES>(x, y, pooling, groups);                                                                                          \
    }                                                                                                                                      \
    ENTRY max_pool2d_grad_##NAME(unsigned *fault, unsigned step, const T *x, const T *dy, T *dx, Pooling pooling, Index groups) {          \
        GUARD;                                                                                                                             \
        max_grad<T, LANES>(x, dy, dx, pooling, groups);                                                                                    \
    }                                                                                                                                      \
    ENTRY avg_pool2d_##NAME(unsigned *fault, unsigned step, const T *x, T *y, Pooling pooling, Index groups) {                             \
        GUARD;                                                                                                                             \
        average<T, LANES>(x, y, pooling, groups);                                                                                          \
    }                                                                                                                                      \
    ENTRY avg_pool2d_grad_##NAME(unsigned *fault, unsigned step, const T *dy, T *dx, Pooling pooling, Index groups) {                      \
        GUARD;                                                                                                                             \
        average_grad<T, LANES>(dy, dx, pooling, groups);                                                                                   \
    }
#define PICK(T, NAME)                                                                                                                      \
    ENTRY max_pool2d_pick_##NAME(unsigned *fault, unsigned step, const T *x, const T *values, T *y, Pooling pooling, Index groups) {       \
        GUARD;                                                                                                                             \
        pick(x, values, y, pooling, groups);                                                                                               \
    }

KERNELS(float, 1, f32)
KERNELS(double, 1, f64)
KERNELS(float, 4, f32_4)
PICK(float, f32)
PICK(double, f64)
