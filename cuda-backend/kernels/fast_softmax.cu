// Softmax of rows, its logarithm, and the cross entropy with class labels, for devices that need not keep the order of sums. Every launch
// has the same order.
//
// A team of neighbouring threads takes a row. Each thread keeps BATCH elements in registers, so the kernel reads a row of up to 2048
// elements once, and longer rows twice. With WIDE elements and accesses of four neighbours, it reads a row of up to 4096 elements once. An
// element takes two exponentials and a product, about 40 instructions for 8 bytes of f32, and an H200 can execute 70 while it waits for
// memory. Blocks have 256 threads and 40 or 48 registers, so sm_87 and sm_90 have 6 or 5 of them at once, with 80 KiB on their way.
#include "formats.cuh"
#include "neighbours.cuh"

// Number of elements that a thread holds of a row that is a multiple of 4.
#define WIDE 16

struct Sum {
    __device__ static float both(float a, float b) { return a + b; }
};
// Skips NaN.
struct Greatest {
    __device__ static float both(float a, float b) { return b > a ? b : a; }
};

// Within |x| * 1e-7 of the exponential, which is two instructions.
__device__ inline float exponential(float x) { return __expf(x); }
__device__ inline float least() { return __int_as_float(0xff800000); }

// A thread's elements of a row of fewer than 2^31 elements, and what is known of all the row's elements. A thread holds COUNT elements, and
// each access is one of LANES neighbours, of which the row's length is a multiple. Neighbouring threads have neighbouring accesses.
template <typename Format, unsigned COUNT, unsigned LANES> struct Row {
    typedef typename Format::Stored Stored;
    struct __align__(LANES * sizeof(Stored)) Lanes {
        Stored of[LANES];
    };
    const Stored *x;
    unsigned extent, number, members;
    float held[COUNT];
    float greatest, sum; // The greatest element, and the sum of exp(x - greatest).

    // Loads elements from a position on. Those past the end are minus infinity.
    __device__ void load(unsigned position) {
#pragma unroll
        for (unsigned k = 0; k < COUNT; k += LANES, position += members * LANES) {
            bool within = position < extent;
            Lanes lanes;
            if (within) lanes = *(const Lanes *)(x + position);
#pragma unroll
            for (unsigned lane = 0; lane < LANES; lane++) held[k + lane] = within ? Format::value(lanes.of[lane]) : least();
        }
    }

    // Finds the greatest element and the sum.
    __device__ Row(const Stored *x, unsigned extent, const Team &team)
        : x(x), extent(extent), number(team.number()), members(team.members), sum(0) {
        float own = least();
#pragma unroll 1
        for (unsigned first = number * LANES; first < extent; first += COUNT * members) {
            float before = own;
            load(first);
#pragma unroll
            for (unsigned k = 0; k < COUNT; k++) own = Greatest::both(own, held[k]);
            if (own > before) sum *= exponential(before - own);
            // While the greatest element is minus infinity, each one counts as 1. The sum becomes 0 with the first greater one.
#pragma unroll
            for (unsigned k = 0; k < COUNT; k++) sum += exponential(held[k] == own ? 0 : held[k] - own);
        }
        greatest = across<Greatest>(own, team);
        sum = across<Sum>(sum == 0 ? 0 : sum * exponential(own - greatest), team);
    }

    // Writes `value(position, x - greatest)` for each element to `y`.
    template <typename Value> __device__ void each(Stored *y, Value value) {
#pragma unroll 1
        for (unsigned first = number * LANES; first < extent; first += COUNT * members) {
            if (extent > COUNT * members) load(first);
            unsigned own = first;
#pragma unroll
            for (unsigned k = 0; k < COUNT; k += LANES, own += members * LANES) {
                Lanes lanes;
#pragma unroll
                for (unsigned lane = 0; lane < LANES; lane++) lanes.of[lane] = Format::stored(value(own + lane, held[k + lane] - greatest));
                if (own < extent) *(Lanes *)(y + own) = lanes;
            }
        }
    }
};

// Calls `row(number, team)` for each row of the block's teams. If there is no such row, the number is `rows`.
template <typename Each>
__device__ inline void for_rows(Index rows, unsigned members, Each each) {
    Team team = {members};
#pragma unroll 1
    for (Index first = (Index)blockIdx.x * team.count(); first < rows; first += (Index)gridDim.x * team.count()) {
        Index row = first + team.own();
        each(row < rows ? row : rows, team);
    }
}

#define SOFTMAX(dtype, Format, kind, COUNT, LANES)                                                                                         \
    extern "C" __global__ void __launch_bounds__(BLOCK)                                                                                    \
        softmax##kind##_##dtype(unsigned *fault, unsigned step, const Format::Stored *x, Format::Stored *y, Index rows, unsigned extent,   \
                                unsigned members) {                                                                                        \
        GUARD;                                                                                                                             \
        for_rows(rows, members, [&](Index number, const Team &team) {                                                                      \
            Row<Format, COUNT, LANES> row(x + number * extent, number < rows ? extent : 0, team);                                          \
            float share = 1 / row.sum;                                                                                                     \
            row.each(y + number * extent, [&](unsigned, float x) { return exponential(x) * share; });                                      \
        });                                                                                                                                \
    }                                                                                                                                      \
    extern "C" __global__ void __launch_bounds__(BLOCK)                                                                                    \
        log_softmax##kind##_##dtype(unsigned *fault, unsigned step, const Format::Stored *x, Format::Stored *y, Index rows,                \
                                    unsigned extent, unsigned members) {                                                                   \
        GUARD;                                                                                                                             \
        for_rows(rows, members, [&](Index number, const Team &team) {                                                                      \
            Row<Format, COUNT, LANES> row(x + number * extent, number < rows ? extent : 0, team);                                          \
            float less = logf(row.sum);                                                                                                    \
            row.each(y + number * extent, [&](unsigned, float x) { return x - less; });                                                    \
        });                                                                                                                                \
    }
FOR_FORMATS(SOFTMAX, , BATCH, 1)
FOR_FORMATS(SOFTMAX, _wide, WIDE, 4)

// Softmax of 16-bit numbers along another axis than the last one, whose elements are `stride` apart. Neighbouring threads have
// neighbouring lanes, and read them three times. A lane has `extent` elements.
template <typename Format, typename End>
__device__ inline void lanes(const typename Format::Stored *x, typename Format::Stored *y, Index count,
                            Index stride, unsigned extent, End end) {
#pragma unroll 1
    for (Index number = first_element(); number < count; number += all_threads()) {
        Index start = number + number / stride * stride * (extent - 1);
        float greatest = least(), sum = 0;
#pragma unroll 1
        for (Index at = 0; at < extent; at++) greatest = Greatest::both(greatest, Format::value(x[start + at * stride]));
#pragma unroll 1
        for (Index at = 0; at < extent; at++) sum += exponential(Format::value(x[start + at * stride]) - greatest);
#pragma unroll 1
        for (Index at = 0; at < extent; at++) {
            y[start + at * stride] = Format::stored(end(Format::value(x[start + at * stride]) - greatest, sum));
        }
    }
}

#define LANES(dtype, Format)                                                                                                               \
    extern "C" __global__ void __launch_bounds__(BLOCK)                                                                                    \
        softmax_lanes_##dtype(unsigned *fault, unsigned step, const Format::Stored *x, Format::Stored *y, Index count, Index stride,       \
                              unsigned extent) {                                                                                           \
        GUARD;                                                                                                                             \
        lanes<Format>(x, y, count, stride, extent, [](float x, float sum) { return exponential(x) / sum; });                               \
    }                                                                                                                                      \
    extern "C" __global__ void __launch_bounds__(BLOCK)                                                                                    \
        log_softmax_lanes_##dtype(unsigned *fault, unsigned step, const Format::Stored *x, Format::Stored *y, Index count, Index stride,   \
                                  unsigned extent) {                                                                                       \
        GUARD;                                                                                                                             \
        lanes<Format>(x, y, count, stride, extent, [](float x, float sum) { return x - logf(sum); });                                      \
    }
LANES(f16, F16)
LANES(bf16, Bf16)

// Class labels: i64 if `wide` is 1, and i32 if it is 0.
struct Labels {
    const void *of;
    unsigned wide;

    __device__ long long operator[](Index row) const { return wide ? ((const long long *)of)[row] : ((const int *)of)[row]; }
};

// The loss of each row of logits, and its gradient. Both refuse a label that is not a class.
#define CROSS_ENTROPY(kind, COUNT, LANES)                                                                                                  \
    extern "C" __global__ void __launch_bounds__(BLOCK)                                                                                    \
        sparse_softmax_cross_entropy##kind##_f32(unsigned *fault, unsigned step, const float *x, const void *labels, float *loss,          \
                                                 Index rows, unsigned classes, unsigned members, unsigned wide) {                          \
        GUARD;                                                                                                                             \
        for_rows(rows, members, [&](Index number, const Team &team) {                                                                      \
            Row<F32, COUNT, LANES> row(x + number * classes, number < rows ? classes : 0, team);                                           \
            if (number >= rows || team.number() > 0) return;                                                                               \
            long long label = Labels{labels, wide}[number];                                                                                \
            if (label < 0 || label >= classes) return refuse(fault, step);                                                                 \
            loss[number] = logf(row.sum) - (row.x[label] - row.greatest);                                                                  \
        });                                                                                                                                \
    }                                                                                                                                      \
    extern "C" __global__ void __launch_bounds__(BLOCK)                                                                                    \
        sparse_softmax_cross_entropy_grad##kind##_f32(unsigned *fault, unsigned step, const float *x, const void *labels,                  \
                                                      const float *dloss, float *dx, Index rows, unsigned classes, unsigned members,       \
                                                      unsigned wide) {                                                                     \
        GUARD;                                                                                                                             \
        for_rows(rows, members, [&](Index number, const Team &team) {                                                                      \
            Row<F32, COUNT, LANES> row(x + number * classes, number < rows ? classes : 0, team);                                           \
            if (number >= rows) return;                                                                                                    \
            long long label = Labels{labels, wide}[number];                                                                                \
            if (label < 0 || label >= classes) refuse(fault, step);                                                                        \
            float scale = dloss[number], share = 1 / row.sum;                                                                              \
            row.each(dx + number * classes, [&](unsigned at, float x) {                                                                    \
                float own = exponential(x) * share;                                                                                        \
                return (at == label ? own - 1 : own) * scale;                                                                              \
            });                                                                                                                            \
        });                                                                                                                                \
    }
CROSS_ENTROPY(, BATCH, 1)
CROSS_ENTROPY(_wide, WIDE, 4)
