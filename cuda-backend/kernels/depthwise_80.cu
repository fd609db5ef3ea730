// Depthwise convolutions of images [n,h,w,c] of 16-bit floats and their gradients, with sums in f32. Memory limits them: each tap has one
// operation for each element that is loaded, and neighbouring threads share the elements through the L1 cache.
//
// A thread has WIDTH neighbouring channels: 4, if each channel has one filter and there are whole groups, or 1. Per byte of global memory,
// a convolution of stride 1 has kh · kw / 2 operations. On sm_87 and sm_90, 4 to 6 blocks of 8 warps are resident, of 48 and of 64 warps.
#include "tensor_core_tiles.cuh"

// Pixels of a row that a thread computes. They share the loads of the filter.
#define PIXELS 4
#define BLOCK 256
// Taps of a row of the filter whose gradients a thread sums, and channels and pixels of a block of them.
#define TAPS 3
#define LANES 32
#define LINES (BLOCK / LANES)

struct Depthwise {
    Axis down, across;
    unsigned images, channels, filters, multiplier; // `filters` is `channels * multiplier`.
    unsigned groups;                                // Groups of pixels in a row of what is computed.
    unsigned bfloat;                                // 1 for bf16, 0 for f16.
};

// Loads neighbouring elements.
template <unsigned WIDTH> __device__ inline void load(float (&to)[WIDTH], const unsigned short *from, unsigned bfloat) {
    unsigned short bits[WIDTH];
    if (WIDTH == 4) *(uint2 *)bits = *(const uint2 *)from;
    else *bits = *from;
#pragma unroll
    for (unsigned i = 0; i < WIDTH; i++) to[i] = Binary16::load(bits, i, bfloat);
}

template <unsigned WIDTH> __device__ inline void store(unsigned short *to, const float (&values)[WIDTH]) {
    if (WIDTH == 4) *(uint2 *)to = {Binary16::pair(values[0], values[1 % WIDTH]), Binary16::pair(values[2 % WIDTH], values[3 % WIDTH])};
    else *to = (unsigned short)Binary16::pair(*values, 0);
}

template <unsigned WIDTH> __device__ inline void add_products(float (&sums)[WIDTH], const float (&a)[WIDTH], const float (&b)[WIDTH]) {
#pragma unroll
    for (unsigned i = 0; i < WIDTH; i++) sums[i] = fmaf(a[i], b[i], sums[i]);
}

// Distance from the first element to the first channel of a pixel.
__device__ inline Index pixel(Index image, const Axis &down, const Axis &across, bool input, unsigned row, unsigned column) {
    return (image * (input ? down.input : down.output) + row) * (input ? across.input : across.output) + column;
}

// y = depthwise_conv2d(x, filter) + bias. Without a bias, its address is 0.
template <unsigned WIDTH>
__device__ inline void convolve(const unsigned short *x, const unsigned short *filter, const unsigned short *bias, unsigned short *y,
                                const Depthwise &conv, Index threads) {
    const Axis &down = conv.down, &across = conv.across;
    for (Index thread = first_element(); thread < threads; thread += all_threads()) {
        Index image = thread;
        unsigned channel = split(image, conv.filters / WIDTH) * WIDTH, ow = split(image, conv.groups) * PIXELS;
        unsigned oh = split(image, down.output), own = channel / conv.multiplier;
        float sums[PIXELS][WIDTH] = {};
#pragma unroll 1
        for (unsigned kh = 0; kh < down.kernel; kh++) {
            unsigned ih = input_at(down, oh, kh);
            if (ih >= down.input) continue;
#pragma unroll 1
            for (unsigned kw = 0; kw < across.kernel; kw++) {
                float weights[WIDTH];
                load(weights, filter + ((Index)kh * across.kernel + kw) * conv.filters + channel, conv.bfloat);
#pragma unroll
                for (unsigned i = 0; i < PIXELS; i++) {
                    unsigned iw = input_at(across, ow + i, kw);
                    if (iw >= across.input) continue;
                    float values[WIDTH];
                    load(values, x + pixel(image, down, across, true, ih, iw) * conv.channels + own, conv.bfloat);
                    add_products(sums[i], values, weights);
                }
            }
        }
#pragma unroll
        for (unsigned i = 0; i < PIXELS; i++) {
            if (ow + i >= across.output) continue;
            if (bias) {
                float biases[WIDTH];
                load(biases, bias + channel, conv.bfloat);
#pragma unroll
                for (unsigned j = 0; j < WIDTH; j++) sums[i][j] += biases[j];
            }
            store(y + pixel(image, down, across, false, oh, ow + i) * conv.filters + channel, sums[i]);
        }
    }
}

// The gradient of x. The pixels of a group are a stride apart, so that they meet the same taps.
template <unsigned WIDTH>
__device__ inline void input_grad(const unsigned short *filter, const unsigned short *dy, unsigned short *dx, const Depthwise &conv,
                                  Index threads) {
    const Axis &down = conv.down, &across = conv.across;
    unsigned phases = min(across.stride, across.input);
    for (Index thread = first_element(); thread < threads; thread += all_threads()) {
        Index image = thread;
        unsigned channel = split(image, conv.channels / WIDTH) * WIDTH, group = split(image, conv.groups), ih = split(image, down.input);
        unsigned iw = group % phases + group / phases * PIXELS * across.stride;
        float sums[PIXELS][WIDTH] = {};
#pragma unroll 1
        for (unsigned kh = 0; kh < down.kernel; kh++) {
            int oh, ow;
            if (!output_at(down, ih, kh, oh) || (unsigned)oh >= down.output) continue;
#pragma unroll 1
            for (unsigned kw = 0; kw < across.kernel; kw++) {
                if (!output_at(across, iw, kw, ow)) continue;
#pragma unroll 1
                for (unsigned q = 0; q < conv.multiplier; q++) {
                    unsigned own = channel * conv.multiplier + q;
                    float weights[WIDTH];
                    load(weights, filter + ((Index)kh * across.kernel + kw) * conv.filters + own, conv.bfloat);
#pragma unroll
                    for (unsigned i = 0; i < PIXELS; i++) {
                        if ((unsigned)ow + i >= across.output) continue;
                        float values[WIDTH];
                        load(values, dy + pixel(image, down, across, false, oh, ow + i) * conv.filters + own, conv.bfloat);
                        add_products(sums[i], values, weights);
                    }
                }
            }
        }
#pragma unroll
        for (unsigned i = 0; i < PIXELS; i++) {
            unsigned column = iw + i * across.stride;
            if (column < across.input) store(dx + pixel(image, down, across, true, ih, column) * conv.channels + channel, sums[i]);
        }
    }
}

// The gradient of the filter. A block sums over the pixels of dy of one part, for LANES * WIDTH channels and TAPS taps of a row. Its lines
// share out the pixels, and their sums are added in order. Several parts go to `parts`, one goes to `dfilter`.
template <unsigned WIDTH>
__device__ inline void filter_grad(const unsigned short *x, const unsigned short *dy, unsigned short *dfilter, float *parts,
                                   const Depthwise &conv, unsigned each) {
    __shared__ float shared[LINES][TAPS][WIDTH][LANES];
    const Axis &down = conv.down, &across = conv.across;
    unsigned lane = threadIdx.x % LANES, line = threadIdx.x / LANES, in_row = quotient_up(across.kernel, TAPS);
    unsigned channel = (blockIdx.x * LANES + lane) * WIDTH, own = channel / conv.multiplier;
    unsigned kh = blockIdx.y / in_row, first_tap = blockIdx.y % in_row * TAPS;
    Index from = (Index)blockIdx.z * each, pixels = (Index)conv.images * down.output * across.output;
    Index end = from + each < pixels ? from + each : pixels;
    float sums[TAPS][WIDTH] = {};
    if (channel < conv.filters) {
#pragma unroll 1
        for (Index at = from + line; at < end; at += LINES) {
            Index image = at;
            unsigned ow = split(image, across.output), oh = split(image, down.output), ih = input_at(down, oh, kh);
            if (ih >= down.input) continue;
            float gradients[WIDTH];
            load(gradients, dy + at * conv.filters + channel, conv.bfloat);
#pragma unroll
            for (unsigned tap = 0; tap < TAPS; tap++) {
                unsigned iw = input_at(across, ow, first_tap + tap);
                if (first_tap + tap >= across.kernel || iw >= across.input) continue;
                float values[WIDTH];
                load(values, x + pixel(image, down, across, true, ih, iw) * conv.channels + own, conv.bfloat);
                add_products(sums[tap], values, gradients);
            }
        }
    }
#pragma unroll
    for (unsigned tap = 0; tap < TAPS; tap++)
#pragma unroll
        for (unsigned i = 0; i < WIDTH; i++) shared[line][tap][i][lane] = sums[tap][i];
    __syncthreads();
    if (line >= TAPS || first_tap + line >= across.kernel || channel >= conv.filters) return;
    // Each line finishes a tap.
    float totals[WIDTH] = {};
#pragma unroll
    for (unsigned other = 0; other < LINES; other++)
#pragma unroll
        for (unsigned i = 0; i < WIDTH; i++) totals[i] += shared[other][line][i][lane];
    Index element = ((Index)kh * across.kernel + first_tap + line) * conv.filters + channel;
    if (!parts) {
        store(dfilter + element, totals);
        return;
    }
    float *to = parts + (Index)blockIdx.z * down.kernel * across.kernel * conv.filters + element;
#pragma unroll
    for (unsigned i = 0; i < WIDTH; i++) to[i] = totals[i];
}

#define ENTRY(NAME, WIDTH) extern "C" __global__ void __launch_bounds__(BLOCK) NAME##_f16_##WIDTH
#define CONSTANT const __grid_constant__ Depthwise
#define KERNELS(WIDTH)                                                                                                                     \
    ENTRY(depthwise_conv2d, WIDTH)(unsigned *fault, unsigned step, const unsigned short *x, const unsigned short *filter,                  \
                                   const unsigned short *bias, unsigned short *y, CONSTANT conv, Index threads) {                          \
        GUARD;                                                                                                                             \
        convolve<WIDTH>(x, filter, bias, y, conv, threads);                                                                                \
    }                                                                                                                                      \
    ENTRY(depthwise_conv2d_input_grad, WIDTH)(unsigned *fault, unsigned step, const unsigned short *filter, const unsigned short *dy,      \
                                              unsigned short *dx, CONSTANT conv, Index threads) {                                          \
        GUARD;                                                                                                                             \
        input_grad<WIDTH>(filter, dy, dx, conv, threads);                                                                                  \
    }                                                                                                                                      \
    ENTRY(depthwise_conv2d_filter_grad, WIDTH)(unsigned *fault, unsigned step, const unsigned short *x, const unsigned short *dy,          \
                                               unsigned short *dfilter, float *parts, CONSTANT conv, unsigned each) {                      \
        GUARD;                                                                                                                             \
        filter_grad<WIDTH>(x, dy, dfilter, parts, conv, each);                                                                             \
    }

KERNELS(1)
KERNELS(4)
