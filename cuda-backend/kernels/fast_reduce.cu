// Sums, extremes, any and all over one axis, for devices that need not keep the order of sums. Every launch has the same order.
//
// A kernel reads each element once, so it computes one operation for each 4 bytes of f32: it waits for memory. Blocks have 256 threads. On
// sm_87 (6 blocks) and sm_90 (8 blocks) all threads that a multiprocessor can have run at once.
#include "elements.cuh"
#include "formats.cuh"
#include "neighbours.cuh"

// The rules: the value without elements, how two values join, and the type in which they do.
struct Sum {
    typedef float Value;
    __device__ static float start() { return 0; }
    __device__ static float both(float a, float b) { return a + b; }
};
struct Maximum {
    typedef float Value;
    __device__ static float start() { return __int_as_float(0xff800000); }
    // NaN if one of them is NaN.
    __device__ static float both(float a, float b) { return a <= b ? b : b < a ? a : a + b; }
};
struct Any {
    typedef unsigned Value;
    __device__ static unsigned start() { return 0; }
    __device__ static unsigned both(unsigned a, unsigned b) { return a || b; }
};
struct All {
    typedef unsigned Value;
    __device__ static unsigned start() { return 1; }
    __device__ static unsigned both(unsigned a, unsigned b) { return a && b; }
};

// Truth values in memory.
struct Truth {
    typedef unsigned char Stored;
    __device__ static unsigned value(unsigned char stored) { return stored != 0; }
    __device__ static unsigned char stored(unsigned value) { return value; }
};

// Reduces the elements from row `at` to row `end`, `1 << shift` rows apart. `first` is at the first of them. Those of neighbouring rows are
// `inner` apart.
template <typename Rule, typename From>
__device__ inline typename Rule::Value share(From first, Index at, Index end, unsigned shift, Index inner) {
    typename Rule::Value value = Rule::start();
    if (at >= end) return value;
    first.begin();
    Index count = (end - at - 1 >> shift) + 1, distance = inner << shift;
#pragma unroll 1
    for (Index done = 0; done < count; done += BATCH, first.advance(distance * BATCH, (Index)BATCH << shift)) {
        typename Rule::Value batch[BATCH];
        unsigned left = count - done < BATCH ? (unsigned)(count - done) : BATCH;
#pragma unroll
        for (unsigned k = 0; k < BATCH; k++) batch[k] = first.value(k * distance, (Index)k << shift, k < left, Rule::start());
        first.store();
#pragma unroll
        for (unsigned k = 0; k < BATCH; k++) value = Rule::both(value, batch[k]);
    }
    return value;
}

// The end of this block's part.
__device__ inline Index part_end(const Shape &shape) {
    Index end = (blockIdx.y + 1) * shape.part;
    return end < shape.extent ? end : shape.extent;
}

// Writes a result. If there are several parts, it is one of the values that another launch reduces, which are in the type `Partial`.
// Otherwise `divisor` divides it, unless it is 0.
template <typename Out, typename Partial, typename V>
__device__ inline void write(void *y, Index result, V value, Index divisor) {
    if (gridDim.y > 1)
        ((typename Partial::Stored *)y)[result * gridDim.y + blockIdx.y] = Partial::stored(value);
    else
        ((typename Out::Stored *)y)[result] = Out::stored(divisor ? value / (V)divisor : value);
}

// Reduces rows, if `inner` is 1: a team of neighbouring threads takes one row.
template <typename Rule, typename Out, typename Partial, typename From>
__device__ inline void rows(const From &x, void *y, const Shape &shape, Index divisor, unsigned members) {
    Team team = {members};
    unsigned shift = __ffs(members) - 1;
#pragma unroll 1
    for (Index first = (Index)blockIdx.x * team.count(); first < shape.outer; first += (Index)gridDim.x * team.count()) {
        Index result = first + team.own();
        bool within = result < shape.outer;
        Index start = blockIdx.y * shape.part + team.number(), end = within ? part_end(shape) : 0;
        Place place = {result * shape.extent + start, 0, start, result};
        typename Rule::Value value = across<Rule>(share<Rule>(x.from(place), start, end, shift, 1), team);
        if (within && team.number() == 0) write<Out, Partial>(y, result, value, divisor);
    }
}

// Reduces columns: a block takes BLOCK / members neighbouring ones, with `members` threads for each. Neighbouring threads have
// neighbouring columns.
template <typename Rule, typename Out, typename Partial, typename From>
__device__ inline void columns(const From &x, void *y, const Shape &shape, Index divisor, unsigned members) {
    __shared__ typename Rule::Value values[BLOCK];
    unsigned width = BLOCK / members, column = threadIdx.x & (width - 1), number = threadIdx.x / width;
    Index strips = (shape.inner - 1 >> __ffs(width) - 1) + 1;
#pragma unroll 1
    for (Index strip = blockIdx.x; strip < shape.outer * strips; strip += gridDim.x) {
        Index outer = strip / strips, inner = (strip - outer * strips) * width + column;
        bool within = inner < shape.inner;
        Index start = blockIdx.y * shape.part + number, end = within ? part_end(shape) : 0;
        Place place = {(outer * shape.extent + start) * shape.inner + inner, inner, start, outer};
        values[threadIdx.x] = share<Rule>(x.from(place), start, end, __ffs(members) - 1, shape.inner);
        __syncthreads();
#pragma unroll 1
        for (unsigned half = BLOCK / 2; half >= width; half /= 2) {
            if (threadIdx.x < half) values[threadIdx.x] = Rule::both(values[threadIdx.x], values[threadIdx.x + half]);
            __syncthreads();
        }
        // A thread writes the place next that it reads here.
        if (within && number == 0) write<Out, Partial>(y, outer * shape.inner + inner, values[threadIdx.x], divisor);
    }
}

#define REDUCE(name, kernel, Rule, In, Out, Partial)                                                                                       \
    extern "C" __global__ void __launch_bounds__(BLOCK) name(unsigned *fault, unsigned step, const In::Stored *x, void *y, Shape shape,    \
                                                             Index divisor, unsigned members) {                                            \
        GUARD;                                                                                                                             \
        kernel<Rule, Out, Partial>(Memory<In>{x}, y, shape, divisor, members);                                                             \
    }
// The parameters of the computation follow the others.
#define REDUCE_OPENING(name, kernel, Rule, Out, Partial)                                                                                   \
    extern "C" __global__ void __launch_bounds__(BLOCK) name(unsigned *fault, unsigned step, void *y, Shape shape, Index divisor,          \
                                                             unsigned members) {                                                           \
        GUARD;                                                                                                                             \
        kernel<Rule, Out, Partial>(Opening{}, y, shape, divisor, members);                                                                 \
    }
// The values of parts of all floats are f32, and the last launch rounds their sum to the type of the result.
#define SUM(dtype, Format)                                                                                                                 \
    REDUCE(sum_rows_##dtype, rows, Sum, Format, Format, F32)                                                                               \
    REDUCE(sum_columns_##dtype, columns, Sum, Format, Format, F32)                                                                         \
    REDUCE(sum_parts_##dtype, rows, Sum, F32, Format, F32)                                                                                 \
    REDUCE_OPENING(sum_opening_rows_##dtype, rows, Sum, Format, F32)                                                                       \
    REDUCE_OPENING(sum_opening_columns_##dtype, columns, Sum, Format, F32)
FOR_FORMATS(SUM)
REDUCE(max_rows_f32, rows, Maximum, F32, F32, F32)
REDUCE(max_columns_f32, columns, Maximum, F32, F32, F32)
REDUCE(max_parts_f32, rows, Maximum, F32, F32, F32)
REDUCE_OPENING(max_opening_rows_f32, rows, Maximum, F32, F32)
REDUCE_OPENING(max_opening_columns_f32, columns, Maximum, F32, F32)
REDUCE(any_rows_bool, rows, Any, Truth, Truth, Truth)
REDUCE(all_rows_bool, rows, All, Truth, Truth, Truth)
