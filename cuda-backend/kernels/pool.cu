// Poolings of images [n,h,w,c] and their gradients. Each thread computes one element, in the order of the portable kernels.
#include "window.cuh"

struct Pooling {
    Axis down, across;
    unsigned channels;
};

// Position in the images of an element.
__device__ inline Index element_at(const Pooling &pooling, Index image, unsigned ih, unsigned iw, unsigned channel) {
    return ((image * pooling.down.input + ih) * pooling.across.input + iw) * pooling.channels + channel;
}

// True if `x` replaces `best`, the maximum so far: `x` is greater, or it is the first NaN.
template <typename T> __device__ inline bool beats(T x, T best) { return !(x <= best) && best == best; }

// Position in the images of the greatest element under a window: of equals the first, of NaN the first NaN.
template <typename T>
__device__ inline Index greatest(const T *__restrict__ x, const Pooling &pooling, Index image, unsigned oh, unsigned ow,
                                 unsigned channel) {
    Span rows = covered_by(pooling.down, oh), columns = covered_by(pooling.across, ow);
    Index line = element_at(pooling, image, rows.first, columns.first, channel), first = line;
    T best = x[line];
#pragma unroll 1
    for (unsigned ih = rows.first; ih < rows.end; ih++) {
        Index at = line;
        for (unsigned iw = columns.first; iw < columns.end; iw++) {
            T value = x[at];
            if (beats(value, best)) {
                best = value;
                first = at;
            }
            at += pooling.channels;
        }
        line += (Index)pooling.across.input * pooling.channels;
    }
    return first;
}

// The element of `values` at the position of each window's maximum in x.
template <typename T>
__device__ inline void pick(const T *__restrict__ x, const T *__restrict__ values, T *__restrict__ y, const Pooling &pooling,
                            Index elements) {
    for (Index at = first_element(); at < elements; at += all_threads()) {
        Index image = at;
        unsigned channel = split(image, pooling.channels), ow = split(image, pooling.across.output);
        unsigned oh = split(image, pooling.down.output);
        y[at] = values[greatest(x, pooling, image, oh, ow, channel)];
    }
}

// dx of the maximum. An element looks for the windows of which it is the maximum.
template <typename T>
__device__ inline void max_grad(const T *__restrict__ x, const T *__restrict__ dy, T *__restrict__ dx, const Pooling &pooling,
                                Index elements) {
    const Axis &down = pooling.down, &across = pooling.across;
    for (Index at = first_element(); at < elements; at += all_threads()) {
        Index image = at;
        unsigned channel = split(image, pooling.channels), iw = split(image, across.input), ih = split(image, down.input);
        Span rows = covering(down, ih), columns = covering(across, iw);
        T sum = 0;
#pragma unroll 1
        for (unsigned oh = rows.first; oh < rows.end; oh++) {
#pragma unroll 1
            for (unsigned ow = columns.first; ow < columns.end; ow++) {
                if (greatest(x, pooling, image, oh, ow, channel) != at) continue;
                sum += dy[((image * down.output + oh) * across.output + ow) * pooling.channels + channel];
            }
        }
        dx[at] = sum;
    }
}

// Number of elements under a window.
template <typename T> __device__ inline T count(Span rows, Span columns) {
    return (T)((Index)(rows.end - rows.first) * (columns.end - columns.first));
}

// Average of each window.
template <typename T>
__device__ inline void average(const T *__restrict__ x, T *__restrict__ y, const Pooling &pooling, Index elements) {
    for (Index at = first_element(); at < elements; at += all_threads()) {
        Index image = at;
        unsigned channel = split(image, pooling.channels), ow = split(image, pooling.across.output);
        unsigned oh = split(image, pooling.down.output);
        Span rows = covered_by(pooling.down, oh), columns = covered_by(pooling.across, ow);
        T sum = 0;
#pragma unroll 1
        for (unsigned ih = rows.first; ih < rows.end; ih++) {
            const T *from = x + element_at(pooling, image, ih, columns.first, channel);
            for (unsigned iw = columns.first; iw < columns.end; iw++) {
                sum += *from;
                from += pooling.channels;
            }
        }
        y[at] = sum / count<T>(rows, columns);
    }
}

// dx of the average. An element takes its part of dy of each window that covers it.
template <typename T>
__device__ inline void average_grad(const T *__restrict__ dy, T *__restrict__ dx, const Pooling &pooling, Index elements) {
    const Axis &down = pooling.down, &across = pooling.across;
    for (Index at = first_element(); at < elements; at += all_threads()) {
        Index image = at;
        unsigned channel = split(image, pooling.channels), iw = split(image, across.input), ih = split(image, down.input);
        Span rows = covering(down, ih), columns = covering(across, iw);
        T sum = 0;
#pragma unroll 1
        for (unsigned oh = rows.first; oh < rows.end; oh++) {
            const T *from = dy + ((image * down.output + oh) * across.output + columns.first) * pooling.channels + channel;
#pragma unroll 1
            for (unsigned ow = columns.first; ow < columns.end; ow++) {
                sum += *from * ((T)1 / count<T>(covered_by(down, oh), covered_by(across, ow)));
                from += pooling.channels;
            }
        }
        dx[at] = sum;
    }
}

#define ENTRY extern "C" __global__ void

#define KERNELS(T, NAME)                                                                                                                   \
    ENTRY max_pool2d_##NAME(unsigned *fault, unsigned step, const T *x, T *y, Pooling pooling, Index elements) {                           \
        GUARD;                                                                                                                             \
        pick(x, x, y, pooling, elements);                                                                                                  \
    }                                                                                                                                      \
    ENTRY max_pool2d_pick_##NAME(unsigned *fault, unsigned step, const T *x, const T *values, T *y, Pooling pooling, Index elements) {     \
        GUARD;                                                                                                                             \
        pick(x, values, y, pooling, elements);                                                                                             \
    }                                                                                                                                      \
    ENTRY max_pool2d_grad_##NAME(unsigned *fault, unsigned step, const T *x, const T *dy, T *dx, Pooling pooling, Index elements) {        \
        GUARD;                                                                                                                             \
        max_grad(x, dy, dx, pooling, elements);                                                                                            \
    }                                                                                                                                      \
    ENTRY avg_pool2d_##NAME(unsigned *fault, unsigned step, const T *x, T *y, Pooling pooling, Index elements) {                           \
        GUARD;                                                                                                                             \
        average(x, y, pooling, elements);                                                                                                  \
    }                                                                                                                                      \
    ENTRY avg_pool2d_grad_##NAME(unsigned *fault, unsigned step, const T *dy, T *dx, Pooling pooling, Index elements) {                    \
        GUARD;                                                                                                                             \
        average_grad(dy, dx, pooling, elements);                                                                                           \
    }

KERNELS(float, f32)
KERNELS(double, f64)
