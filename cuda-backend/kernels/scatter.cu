// Kernels that add rows to a tensor, or replace rows of it, at positions that an index tensor selects. A launch of `begin` comes first.
// An update is a row that is added, or that replaces another one.
//
// A block of whole warps works on one update. To add, the block of the first update at a position also adds all later ones there, and
// their blocks do nothing. To replace, only the block of the last one writes. So each row has one block, which adds in ascending order,
// and the work does not depend on the size of the tensor.
#include "common.cuh"
#include "indices.cuh"

#define BLOCK 256
#define WARP 32
// Number of elements that a thread loads at a time.
#define BATCH 4

// What the output is before the updates. A thread copies each of its elements of `base`, or writes 0 if there is none.
template <typename T>
__device__ void begin(T *y, const T *base, Index total) {
    if (y == base) return;
    for (Index i = first_element(); i < total; i += all_threads()) y[i] = base ? base[i] : T();
}

// The updates of a slab that have the position `at`.
template <typename I>
struct Search {
    const I *index;
    const Selection &selection;
    Index at;
    // Bit t % WARP of found[t / WARP] is set if thread t has found an update.
    unsigned *found;

    // Looks at one update per thread, from `start` to `end`.
    __device__ void look(Index start, Index end) {
        Index own = start + threadIdx.x;
        unsigned votes = __ballot_sync(~0u, own < end && selected(index, own, selection) == at);
        __syncthreads();
        if (threadIdx.x % WARP == 0) found[threadIdx.x / WARP] = votes;
        __syncthreads();
    }

    // True if there is an update at the position from `start` to `end`.
    __device__ bool any(Index start, Index end) {
        unsigned votes = 0;
        for (; start < end && !votes; start += blockDim.x) {
            look(start, end);
#pragma unroll 1
            for (unsigned warp = 0; warp < blockDim.x / WARP; warp++) votes |= found[warp];
        }
        return votes;
    }

    // Returns `total` plus an element of each update at the position from `start` to `end`, in ascending order. Those of neighbouring
    // updates are `row` apart, and `column` is that of update 0. A thread without a column, a null pointer, only looks.
    template <typename T>
    __device__ T sum(T total, const T *column, Index row, Index start, Index end) {
        for (; start < end; start += blockDim.x) {
            look(start, end);
#pragma unroll 1
            for (unsigned warp = 0; column && warp < blockDim.x / WARP; warp++) {
#pragma unroll 1
                for (unsigned votes = found[warp]; votes;) {
                    // Loads some elements before it adds the first one.
                    T elements[BATCH];
                    unsigned count = 0;
#pragma unroll
                    for (unsigned k = 0; k < BATCH; k++, votes &= votes - 1) {
                        if (!votes) continue;
                        elements[k] = column[(start + warp * WARP + __ffs(votes) - 1) * row];
                        count++;
                    }
#pragma unroll
                    for (unsigned k = 0; k < BATCH; k++) total = k < count ? total + elements[k] : total;
                }
            }
        }
        return total;
    }
};

// `units` is the number of all updates, `each` that of a slab, `row` the number of elements of an update, and `extent` the number of rows
// of a slab of y. `shared` slabs in turn share their indices. A thread computes one column of a row, and grid.y divides the columns.
template <bool SUM, typename T, typename I>
__device__ void scatter(unsigned *fault, unsigned step, T *y, const T *updates, const I *index, Index units, Index row, Index each,
                        Index extent, Index shared, const Selection &selection) {
    __shared__ unsigned found[BLOCK / WARP];
    for (Index unit = blockIdx.x; unit < units; unit += gridDim.x) {
        Index slab = unit, number = split_wide(slab, each), batch = slab;
        split_wide(batch, shared);
        const I *indices = index + batch * each * selection.depth;
        Index at = selected(indices, number, selection);
        if (at == REFUSED) refuse(fault, step);
        if (at == REFUSED || at == DROPPED) continue;
        Search<I> equal = {indices, selection, at, found};
        if (SUM ? equal.any(0, number) : equal.any(number + 1, each)) continue;
        T *to = y + (slab * extent + at) * row;
        const T *from = updates + slab * each * row;
        for (Index left = (Index)blockIdx.y * blockDim.x; left < row; left += (Index)gridDim.y * blockDim.x) {
            Index column = left + threadIdx.x;
            bool within = column < row;
            T value = SUM ? equal.sum(within ? to[column] : T(0), within ? from + column : nullptr, row, number, each)
                          : (within ? from[number * row + column] : T(0));
            if (within) to[column] = value;
        }
    }
}

#define SCATTER(name, adds, type, T, I)                                                                         \
    extern "C" __global__ void name##_##type##_##I(BEGINNING, T *y, const T *updates, const I *index,           \
                                                   Index units, Index row, Index each, Index extent,            \
                                                   Index shared, CONSTANT Selection selection) {                \
        GUARD;                                                                                                  \
        scatter<adds>(fault, step, y, updates, index, units, row, each, extent, shared, selection);             \
    }
// gather_grad, scatter_add, scatter_nd: updates are added in ascending order.
#define SUM(dtype, T)                     \
    SCATTER(sum, true, dtype, T, i32)     \
    SCATTER(sum, true, dtype, T, i64)
// tensor_scatter_update: of several updates at a position, the last one replaces the row.
#define MOVE(size, T)                                                                                           \
    extern "C" __global__ void begin_##size(BEGINNING, T *y, const T *base, Index total) {                      \
        GUARD;                                                                                                  \
        begin(y, base, total);                                                                                  \
    }                                                                                                           \
    SCATTER(replace, false, size, T, i32)                                                                       \
    SCATTER(replace, false, size, T, i64)

MOVE(1, unsigned char)
MOVE(2, unsigned short)
MOVE(4, unsigned)
MOVE(8, Index)
extern "C" __global__ void begin_16(BEGINNING, uint4 *y, const uint4 *base, Index total) {
    GUARD;
    begin(y, base, total);
}
SUM(f32, float)
SUM(f64, double)
// Sums of integers wrap, so signed ones have the same bits.
SUM(u8, unsigned char)
SUM(u32, unsigned)
SUM(u64, Index)
