// Kernels that move elements. They know only the size of an element.
#include "common.cuh"
#include "indices.cuh"

// A walk over a tensor in row-major order, which gives the positions of its elements in another tensor. A group is one axis, or
// several neighbouring axes. The innermost group comes first.
struct Walk {
    unsigned groups;
    Axes extents;
    // Signed distance in the other tensor between neighbours along the group.
    Axes stride_low, stride_high;
};

__device__ inline Index stride(const Walk &walk, unsigned group) {
    return (Index)walk.stride_high.of[group] << 32 | walk.stride_low.of[group];
}

// Position in the other tensor of element `element` of the walked tensor. `begin` is that of element 0.
__device__ inline Index position(const Walk &walk, Index begin, Index element) {
    unsigned last = walk.groups - 1;
#pragma unroll 1
    for (unsigned group = 0; group < last; group++) {
        begin += split(element, walk.extents.of[group]) * stride(walk, group);
    }
    return begin + element * stride(walk, last);
}

// reshape, broadcast_to, transpose, strided_slice. A thread reads the element for each of its positions in y.
template <typename T>
__device__ void collect(T *y, const T *x, Index total, Index begin, const Walk &walk) {
    for (Index i = first_element(); i < total; i += all_threads()) y[i] = x[position(walk, begin, i)];
}

// concat, pad. A thread writes each of its elements of x to its position in y.
template <typename T>
__device__ void place(T *y, const T *x, Index total, Index begin, const Walk &walk) {
    for (Index i = first_element(); i < total; i += all_threads()) y[position(walk, begin, i)] = x[i];
}

// pad. A thread writes the value to each of its positions in y.
template <typename T>
__device__ void fill(T *y, const T *value, Index total) {
    T filling = *value;
    for (Index i = first_element(); i < total; i += all_threads()) y[i] = filling;
}

// pad along one axis: of a tensor [.., y_rows, row], x is the rows from `first` on, and `value` the others. A thread finds the element for
// each of its positions in y.
template <typename T>
__device__ void embed(T *y, const T *x, T value, Index total, Index row, Index y_rows, Index x_rows, Index first) {
    for (Index i = first_element(); i < total; i += all_threads()) {
        Index slab = i, column = split_wide(slab, row), at = split_wide(slab, y_rows) - first;
        y[i] = at < x_rows ? x[(slab * x_rows + at) * row + column] : value;
    }
}

// A value of `size` bytes as often as 16 bytes have room for it.
__device__ inline uint4 repeated(const void *value, unsigned size) {
    Index word = size == 8 ? *(const Index *)value : size == 4 ? *(const unsigned *)value * 0x100000001u
               : size == 2 ? *(const unsigned short *)value * 0x1000100010001u : *(const unsigned char *)value * 0x101010101010101u;
    return make_uint4(word, word >> 32, word, word >> 32);
}

#define TILE 32
#define TILE_ROWS 8

// transpose, if the innermost axes of x and y differ. A block of TILE x TILE_ROWS threads moves tiles through shared memory, so that
// neighbouring threads read neighbours in x and write neighbours in y. Group 0 is the innermost of y, group 1 that of x. `from` has the
// strides in x, `to` those in y.
template <typename T>
__device__ void transpose(T *y, const T *x, Index tiles, const Walk &from, const Walk &to) {
    __shared__ T tile[TILE][TILE + 1];
    unsigned wide = from.extents.of[0], high = from.extents.of[1];
    Index down = stride(from, 0), across = stride(to, 1);
    for (Index number = blockIdx.x; number < tiles; number += gridDim.x) {
        Index rest = number;
        unsigned column = split(rest, (wide - 1) / TILE + 1) * TILE, row = split(rest, (high - 1) / TILE + 1) * TILE;
        Index in = row + column * down, out = column + row * across;
#pragma unroll 1
        for (unsigned group = 2; group < from.groups; group++) {
            unsigned at = split(rest, from.extents.of[group]);
            in += at * stride(from, group);
            out += at * stride(to, group);
        }
        unsigned columns = wide - column, rows = high - row;
        for (unsigned i = threadIdx.y; i < TILE; i += TILE_ROWS) {
            if (i < columns && threadIdx.x < rows) tile[i][threadIdx.x] = x[in + i * down + threadIdx.x];
        }
        __syncthreads();
        for (unsigned i = threadIdx.y; i < TILE; i += TILE_ROWS) {
            if (i < rows && threadIdx.x < columns) y[out + i * across + threadIdx.x] = tile[threadIdx.x][i];
        }
        __syncthreads();
    }
}

// gather, gather_nd. A thread finds the row of x for each of its positions in y. `row` is the number of elements of a row, `each` the
// number of rows that each slab of y has, and `extent` that of each slab of x. `shared` slabs in turn share their indices.
template <typename T, typename I>
__device__ void gather(unsigned *fault, unsigned step, T *y, const T *x, const I *index, Index total, Index row, Index each,
                       Index extent, Index shared, const Selection &selection) {
#pragma unroll 1
    for (Index i = first_element(); i < total; i += all_threads()) {
        Index slab = i, column = split_wide(slab, row), number = split_wide(slab, each), batch = slab;
        split_wide(batch, shared);
        Index at = selected(index, batch * each + number, selection);
        if (at == REFUSED) {
            refuse(fault, step);
        } else {
            y[i] = at == DROPPED ? T() : x[(slab * extent + at) * row + column];
        }
    }
}

#define GATHER(size, T, I)                                                                                      \
    extern "C" __global__ void gather_##size##_##I(BEGINNING, T *y, const T *x, const I *index, Index total,    \
                                                   Index row, Index each, Index extent, Index shared,           \
                                                   CONSTANT Selection selection) {                              \
        GUARD;                                                                                                  \
        gather(fault, step, y, x, index, total, row, each, extent, shared, selection);                          \
    }
#define WALK(size, T, name)                                                                                     \
    extern "C" __global__ void name##_##size(BEGINNING, T *y, const T *x, Index total, Index begin,             \
                                             CONSTANT Walk walk) {                                              \
        GUARD;                                                                                                  \
        name(y, x, total, begin, walk);                                                                         \
    }
#define EMBED(size, T, filling)                                                                                 \
    extern "C" __global__ void embed_##size(BEGINNING, T *y, const T *x, const void *value, unsigned bytes,     \
                                            Index total, Index row, Index y_rows, Index x_rows, Index first) {  \
        GUARD;                                                                                                  \
        embed(y, x, filling, total, row, y_rows, x_rows, first);                                                \
    }
#define MOVES(size, T)                                                                                          \
    WALK(size, T, collect)                                                                                      \
    WALK(size, T, place)                                                                                        \
    GATHER(size, T, i32)                                                                                        \
    GATHER(size, T, i64)
#define ENTRIES(size, T)                                                                                        \
    MOVES(size, T)                                                                                              \
    EMBED(size, T, *(const T *)value)                                                                           \
    extern "C" __global__ void fill_##size(BEGINNING, T *y, const T *value, Index total) {                      \
        GUARD;                                                                                                  \
        fill(y, value, total);                                                                                  \
    }                                                                                                           \
    extern "C" __global__ void transpose_##size(BEGINNING, T *y, const T *x, Index tiles, CONSTANT Walk from,   \
                                                CONSTANT Walk to) {                                             \
        GUARD;                                                                                                  \
        transpose(y, x, tiles, from, to);                                                                       \
    }

ENTRIES(1, unsigned char)
ENTRIES(2, unsigned short)
ENTRIES(4, unsigned)
ENTRIES(8, Index)
// Several elements at a time, where they stay neighbours.
MOVES(16, uint4)
EMBED(16, uint4, repeated(value, bytes))
