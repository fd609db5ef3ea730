// Convolutions of images [n,h,w,c] and their gradients. Each channel of the result takes all channels of the images, or only one, if the
// convolution is depthwise.
//
// Bits: each sum has the order of the portable kernels, and leaves out the taps in the padding. Only the filter's gradient may be summed in
// parts, whose number depends on the shapes alone.
#include "quad.cuh"
#include "window.cuh"

// Number of pixels that a thread computes. They share the loads of the filter. They are in the same row, so the taps in the padding above
// and below are the same for all.
#define PIXELS 4
// Number of threads of a block.
#define BLOCK 256

struct Convolution {
    Axis down, across;
    unsigned channels; // Of the images.
    unsigned filters;  // Channels of the result.
    unsigned groups;   // Groups of pixels in a row of what is computed.
};

// Pixel number `pixel` of `pixels`, relative to the first element. The number is negative if the pixel is before the first, in the padding.
template <typename T> __device__ inline const T *pixel_at(const T *pixels, long long pixel, unsigned channels) {
    return pixels + pixel * (long long)channels;
}

// y = conv2d(x, filter) + bias. A thread computes one channel of a group of neighbouring pixels. Without a bias, its address is 0.
template <typename T, bool DEPTHWISE>
__device__ inline void convolve(const T *__restrict__ x, const T *__restrict__ filter, const T *__restrict__ bias, T *__restrict__ y,
                                const Convolution &conv, Index threads) {
    const Axis &down = conv.down, &across = conv.across;
    unsigned depth = DEPTHWISE ? 1 : conv.channels;
    Index step = (Index)across.stride * conv.channels;
    for (Index thread = first_element(); thread < threads; thread += all_threads()) {
        Index image = thread;
        unsigned channel = split(image, conv.filters), ow = split(image, conv.groups) * PIXELS, oh = split(image, down.output);
        const T *pixels = pixel_at(x, image * down.input * across.input, conv.channels);
        if (DEPTHWISE) pixels += channel / (conv.filters / conv.channels);
        T sums[PIXELS] = {};
#pragma unroll 1
        for (unsigned kh = 0; kh < down.kernel; kh++) {
            unsigned ih = input_at(down, oh, kh);
            if (ih >= down.input) continue;
#pragma unroll 1
            for (unsigned kw = 0; kw < across.kernel; kw++) {
                unsigned iw = input_at(across, ow, kw);
                bool inside[PIXELS];
                for (unsigned i = 0; i < PIXELS; i++) inside[i] = ow + i < across.output && iw + i * across.stride < across.input;
                const T *from = pixel_at(pixels, (long long)ih * across.input + (int)iw, conv.channels);
                const T *weights = filter + ((Index)kh * across.kernel + kw) * depth * conv.filters + channel;
                for (unsigned d = 0; d < depth; d++) {
                    T weight = *weights;
                    for (unsigned i = 0; i < PIXELS; i++) {
                        if (inside[i]) sums[i] += from[i * step] * weight;
                    }
                    from++;
                    weights += conv.filters;
                }
            }
        }
        T *to = y + ((image * down.output + oh) * across.output + ow) * conv.filters + channel;
        for (unsigned i = 0; i < PIXELS; i++) {
            if (ow + i < across.output) to[(Index)i * conv.filters] = bias ? sums[i] + bias[channel] : sums[i];
        }
    }
}

// The taps of a filter in row-major order.
struct Taps {
    Index number;
    unsigned kh, kw;

    __device__ inline void next(const Convolution &conv) {
        number++;
        if (++kw == conv.across.kernel) {
            kw = 0;
            kh++;
        }
    }
};

// Pixels of the images' gradient that a thread computes. Neighbours in the group are a stride apart, so that they meet the same taps.
struct Group {
    Index image;
    unsigned ih, iw, count;
};

__device__ inline Group group_of(const Convolution &conv, Index number) {
    const Axis &across = conv.across;
    unsigned row = split(number, conv.groups), ih = split(number, conv.down.input), phases = min(across.stride, across.input);
    unsigned iw = row % phases + row / phases * PIXELS * across.stride;
    unsigned count = iw < across.input ? min(quotient_up(across.input - iw, across.stride), PIXELS) : 0;
    return {number, ih, iw, count};
}

// Pixels of dy that have a tap on the pixels of a group.
template <typename T> struct Met {
    const T *first; // Pixel of the group's first. The others follow.
    bool inside[PIXELS];
};

// Finds the pixels of dy that have the tap `tap` on the pixels of `group`. Returns false if there are none.
template <typename T>
__device__ inline bool meet(const Convolution &conv, const Group &group, const T *dy, const Taps &tap, Met<T> &met) {
    const Axis &down = conv.down, &across = conv.across;
    int oh, ow;
    if (!output_at(down, group.ih, tap.kh, oh) || (unsigned)oh >= down.output || !output_at(across, group.iw, tap.kw, ow)) return false;
    for (unsigned i = 0; i < PIXELS; i++) met.inside[i] = i < group.count && (unsigned)ow + i < across.output;
    met.first = pixel_at(dy, (long long)(group.image * down.output + oh) * across.output + ow, conv.filters);
    return true;
}

// Stores one channel of the pixels of `group`.
template <typename T> __device__ inline void store(const Convolution &conv, const Group &group, unsigned channel, const T *sums, T *dx) {
    const Axis &across = conv.across;
    T *to = dx + ((group.image * conv.down.input + group.ih) * across.input + group.iw) * conv.channels + channel;
    for (unsigned i = 0; i < PIXELS; i++) {
        if (i < group.count) to[(Index)i * across.stride * conv.channels] = sums[i];
    }
}

// dx of conv2d. A warp computes a slice of channels of a group, one channel per lane. The threads of a block take the same slice: they
// load tiles of the filter, transposed, and share them.
template <typename T>
__device__ inline void input_grad(const T *__restrict__ filter, const T *__restrict__ dy, T *__restrict__ dx, const Convolution &conv,
                                  Index groups) {
    const unsigned LANES = 32, WARPS = BLOCK / LANES;
    // Elements [co,ci] of one tap. The rows are longer by one, so that the elements of a column are in different banks.
    __shared__ T tile[LANES][LANES + 1];
    unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    unsigned slices = quotient_up(conv.channels, LANES);
    Index blocks = (groups + WARPS - 1) / WARPS * slices;
    for (Index block = blockIdx.x; block < blocks; block += gridDim.x) {
        Index number = block;
        unsigned slice = split(number, slices) * LANES, width = min(conv.channels - slice, LANES);
        number = number * WARPS + warp;
        bool active = number < groups && lane < width;
        Group group = group_of(conv, number);
        T sums[PIXELS] = {};
#pragma unroll 1
        for (Taps tap = {}; tap.kh < conv.down.kernel; tap.next(conv)) {
            Met<T> met;
            bool meets = active && meet(conv, group, dy, tap, met);
            const T *weights = filter + (tap.number * conv.channels + slice) * conv.filters;
#pragma unroll 1
            for (unsigned first = 0; first < conv.filters; first += LANES) {
                unsigned depth = min(conv.filters - first, LANES);
                for (unsigned ci = warp; ci < width; ci += WARPS) {
                    if (lane < depth) tile[lane][ci] = weights[(Index)ci * conv.filters + first + lane];
                }
                __syncthreads();
                for (unsigned d = 0; meets && d < depth; d++) {
                    T weight = tile[d][lane];
                    for (unsigned i = 0; i < PIXELS; i++) {
                        if (met.inside[i]) sums[i] += met.first[(Index)i * conv.filters + first + d] * weight;
                    }
                }
                __syncthreads();
            }
        }
        if (active) store(conv, group, slice + lane, sums, dx);
    }
}

// dx of depthwise_conv2d. A thread computes one channel of a group.
template <typename T>
__device__ inline void depthwise_input_grad(const T *__restrict__ filter, const T *__restrict__ dy, T *__restrict__ dx,
                                            const Convolution &conv, Index groups) {
    unsigned multiplier = conv.filters / conv.channels;
    for (Index thread = first_element(); thread < groups * conv.channels; thread += all_threads()) {
        Index number = thread;
        unsigned channel = split(number, conv.channels);
        Group group = group_of(conv, number);
        T sums[PIXELS] = {};
#pragma unroll 1
        for (Taps tap = {}; tap.kh < conv.down.kernel; tap.next(conv)) {
            Met<T> met;
            if (!meet(conv, group, dy + channel * multiplier, tap, met)) continue;
            const T *weights = filter + tap.number * conv.filters + channel * multiplier;
            for (unsigned q = 0; q < multiplier; q++) {
                T weight = weights[q];
                for (unsigned i = 0; i < PIXELS; i++) {
                    if (met.inside[i]) sums[i] += met.first[(Index)i * conv.filters + q] * weight;
                }
            }
        }
        store(conv, group, channel, sums, dx);
    }
}

// Where an element of the filter meets the images and the result: its tap, and the channels.
struct Weight {
    unsigned kh, kw, ci, co;
};

template <bool DEPTHWISE> __device__ inline Weight weight_at(const Convolution &conv, Index element) {
    unsigned co = split(element, conv.filters), ci = DEPTHWISE ? co / (conv.filters / conv.channels) : split(element, conv.channels);
    unsigned kw = split(element, conv.across.kernel);
    return {(unsigned)element, kw, ci, co};
}

// Sum of x · dy for an element of the filter's gradient, over the pixels of dy from `from` to before `end`.
template <typename T>
__device__ inline T part_of(const T *__restrict__ x, const T *__restrict__ dy, const Convolution &conv, Weight weight, Index from,
                            Index end) {
    const Axis &down = conv.down, &across = conv.across;
    T sum = {};
    if (from >= end) return sum;
    Span inside = outputs_of(across, weight.kw);
    Index image = from, step = (Index)across.stride * conv.channels;
    unsigned column = split(image, across.output), oh = split(image, down.output);
    while (from < end) {
        // The pixels of one row.
        unsigned count = (unsigned)min((Index)(across.output - column), end - from);
        unsigned first = max(column, inside.first), last = min(column + count, inside.end), ih = input_at(down, oh, weight.kh);
        if (ih < down.input && first < last) {
            Index pixel = (image * down.input + ih) * across.input + input_at(across, first, weight.kw);
            const T *left = x + pixel * conv.channels + weight.ci;
            const T *right = dy + ((image * down.output + oh) * across.output + first) * conv.filters + weight.co;
            for (; first < last; first++) {
                sum += *left * *right;
                left += step;
                right += conv.filters;
            }
        }
        from += count;
        column = 0;
        if (++oh == down.output) {
            oh = 0;
            image++;
        }
    }
    return sum;
}

// dfilter. The threads of a block share out the pixels of dy in `parts` parts of at most `each` pixels. A thread sums one part for one
// element, in the portable order. The parts are then added pairwise: the first half and the second half, until one sum remains.
template <typename T, bool DEPTHWISE>
__device__ inline void filter_grad(const T *__restrict__ x, const T *__restrict__ dy, T *__restrict__ dfilter, const Convolution &conv,
                                   unsigned parts, Index each, Index pixels, Index elements) {
    __shared__ T sums[BLOCK];
    unsigned columns = BLOCK / parts, part = threadIdx.x / columns;
    for (Index tile = blockIdx.x; tile * columns < elements; tile += gridDim.x) {
        Index element = tile * columns + threadIdx.x % columns, from = part * each;
        T sum = {};
        if (element < elements) sum = part_of(x, dy, conv, weight_at<DEPTHWISE>(conv, element), from, min(from + each, pixels));
        for (unsigned half = parts / 2; half > 0; half /= 2) {
            sums[threadIdx.x] = sum;
            __syncthreads();
            if (part < half) sum += sums[threadIdx.x + half * columns];
            __syncthreads();
        }
        if (part == 0 && element < elements) dfilter[element] = sum;
    }
}

#define ENTRY extern "C" __global__ void

#define DEPTHWISE_KERNELS(T, NAME)                                                                                                         \
    ENTRY depthwise_conv2d_##NAME(unsigned *fault, unsigned step, const T *x, const T *filter, const T *bias, T *y, Convolution conv,      \
                                  Index threads) {                                                                                         \
        GUARD;                                                                                                                             \
        convolve<T, true>(x, filter, bias, y, conv, threads);                                                                              \
    }                                                                                                                                      \
    ENTRY depthwise_conv2d_input_grad_##NAME(unsigned *fault, unsigned step, const T *filter, const T *dy, T *dx, Convolution conv,        \
                                             Index groups) {                                                                               \
        GUARD;                                                                                                                             \
        depthwise_input_grad(filter, dy, dx, conv, groups);                                                                                \
    }

#define KERNELS(T, NAME)                                                                                                                   \
    ENTRY conv2d_##NAME(unsigned *fault, unsigned step, const T *x, const T *filter, const T *bias, T *y, Convolution conv,                \
                        Index threads) {                                                                                                   \
        GUARD;                                                                                                                             \
        convolve<T, false>(x, filter, bias, y, conv, threads);                                                                             \
    }                                                                                                                                      \
    ENTRY conv2d_input_grad_##NAME(unsigned *fault, unsigned step, const T *filter, const T *dy, T *dx, Convolution conv, Index groups) {  \
        GUARD;                                                                                                                             \
        input_grad(filter, dy, dx, conv, groups);                                                                                          \
    }                                                                                                                                      \
    ENTRY conv2d_filter_grad_##NAME(unsigned *fault, unsigned step, const T *x, const T *dy, T *dfilter, Convolution conv,                 \
                                    unsigned parts, Index each, Index pixels, Index elements) {                                            \
        GUARD;                                                                                                                             \
        filter_grad<T, false>(x, dy, dfilter, conv, parts, each, pixels, elements);                                                        \
    }                                                                                                                                      \
    DEPTHWISE_KERNELS(T, NAME)                                                                                                             \
    ENTRY depthwise_conv2d_filter_grad_##NAME(unsigned *fault, unsigned step, const T *x, const T *dy, T *dfilter, Convolution conv,       \
                                              unsigned parts, Index each, Index pixels, Index elements) {                                  \
        GUARD;                                                                                                                             \
        filter_grad<T, true>(x, dy, dfilter, conv, parts, each, pixels, elements);                                                         \
    }

KERNELS(float, f32)
KERNELS(double, f64)
// Four neighbouring channels, each of which has its own image channel.
DEPTHWISE_KERNELS(float4, f32_4)
