// Products of matrices on Hopper's tensor cores, which a warpgroup of 4 warps feeds from shared memory.
//
// A block of 2 warpgroups computes a tile of 128 rows. Each warpgroup has 64 of them. The operands come through STAGES stages, which all
// threads copy, STAGES - 2 of them ahead: while the tensor cores multiply a stage, they may still read the one before.
//
// Per byte of global memory, a tile of 128 x 256 has 85 operations, one of 128 x 128 has 64. One block is resident: 8 of 64 warps of sm_90.
// Its shared memory is 192 or 128 KiB.
#include "tensor_core_tiles.cuh"

#define STAGES 4
#define ROWS 128
// Threads of a block, elements of each line in a stage, and bytes of 64 lines of a stage.
#define GROUPS_THREADS 256
#define STEP 64
#define ATOM (64 * STEP * 2)

// The stages, and later the sums of the tile.
extern __shared__ __align__(1024) char memory[];

#define FOUR(sums, i) "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3])
#define SIXTEEN(sums, i) FOUR(sums, i), FOUR(sums, i + 4), FOUR(sums, i + 8), FOUR(sums, i + 12)
#define SIXTY_FOUR(sums, i) SIXTEEN(sums, i), SIXTEEN(sums, i + 16), SIXTEEN(sums, i + 32), SIXTEEN(sums, i + 48)
#define REGISTERS_64                                                                                                                       \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                                               \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "                                                     \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                                                     \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define REGISTERS_128                                                                                                                      \
    REGISTERS_64 ", "                                                                                                                      \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "                                                     \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "                                                     \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "                                         \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
// sums += a · b for 64 rows, some columns and 16 elements of each, in the background.
#define MULTIPLY(COLUMNS, REGISTERS, OPERANDS, ...)                                                                                        \
    template <bool A_ACROSS, bool B_ACROSS>                                                                                                \
    __device__ static void multiply(float (&sums)[COLUMNS / 2], Index a, Index b) {                                                        \
        asm volatile("{\n\t.reg .pred accumulate;\n\tsetp.eq.u32 accumulate, 0, 0;\n\t"                                                    \
                     "wgmma.mma_async.sync.aligned.m64n" #COLUMNS "k16.f32.f16.f16 {" REGISTERS "}, " OPERANDS ";\n\t}"                    \
                     : __VA_ARGS__                                                                                                         \
                     : "l"(a), "l"(b), "n"(A_ACROSS), "n"(B_ACROSS));                                                                      \
    }

struct F16 : Binary16 {
    MULTIPLY(128, REGISTERS_64, "%64, %65, accumulate, 1, 1, %66, %67", SIXTY_FOUR(sums, 0))
    MULTIPLY(256, REGISTERS_128, "%128, %129, accumulate, 1, 1, %130, %131", SIXTY_FOUR(sums, 0), SIXTY_FOUR(sums, 64))
};

// An operand in shared memory, as the tensor cores know it: chunks of 16 bytes in groups of 8 rows of 128 bytes, in which chunk `i` of row
// `r` is at place `i ^ r`. A row is 64 elements of a line, or with `ACROSS`, one element of 64 lines. The groups of a stage follow each
// other, and so do blocks of 64 lines. A descriptor has the address, the distance from one block to the next, and from one group to the
// next, all in units of 16 bytes, and the number of the layout.
template <bool ACROSS> __device__ inline Index descriptor(unsigned address) {
    const Index BLOCKS = ACROSS ? ATOM / 16 : 1, GROUPS = 1024 / 16, LAYOUT = 1;
    return (Index)(address >> 4 & 0x3fff) | BLOCKS << 16 | GROUPS << 32 | LAYOUT << 62;
}

// Bytes from the chunks of one step of 16 elements to the next.
template <bool ACROSS> __device__ inline unsigned step_size() { return ACROSS ? 2048 : 32; }

// An operand of LINES lines, as it comes to a block.
template <bool ACROSS, unsigned LINES> struct Operand {
    enum : unsigned {
        WIDTH = ACROSS ? LINES / 8 : STEP / 8,  // Chunks of a row.
        ROWS_AT_ONCE = GROUPS_THREADS / WIDTH,  // Rows that the threads copy at the same time.
        COPIES = LINES * STEP / 8 / GROUPS_THREADS,
    };

    const char *from;      // The thread's first chunk of the next stage.
    Index step;            // Bytes from one of its chunks to the next.
    unsigned row, left, to; // Its first row, the number of rows from there on, and its place in a stage.
    bool exists;           // False if the columns of its chunks are outside the matrix.

    // `length` is the number of elements of a row in memory, and `k` to `end` are the elements of the sums.
    __device__ Operand(const char *matrix, unsigned length, unsigned lines, unsigned first, unsigned k, unsigned end) {
        unsigned chunk = threadIdx.x % WIDTH;
        row = threadIdx.x / WIDTH;
        unsigned first_row = ACROSS ? k : first, first_column = (ACROSS ? first : k) + chunk * 8;
        left = ACROSS ? end - k : lines - first;
        exists = first_column < (ACROSS ? lines : end);
        from = matrix + ((Index)(first_row + row) * length + first_column) * 2;
        step = (Index)length * 2 * ROWS_AT_ONCE;
        to = (chunk / 8) * ATOM + row * 128 + ((chunk % 8 ^ row % 8) << 4);
    }

    // Starts the copies of the next stage. `k` is the number of elements that were copied before.
    __device__ void bring(unsigned stage, unsigned k, unsigned count) {
        unsigned chunk = threadIdx.x % WIDTH, some = (ACROSS ? exists : k + chunk * 8 < count) ? CHUNK : 0;
        unsigned passed = ACROSS ? k + row : row;
#pragma unroll
        for (unsigned i = 0; i < COPIES; i++)
            copy(stage + to + i * (ROWS_AT_ONCE * 128), from + i * step, passed + i * ROWS_AT_ONCE < left ? some : 0);
        from += ACROSS ? step * COPIES : STEP * 2;
    }
};

// Computes a tile of 128 rows of a product.
template <typename Type, bool A_ACROSS, bool B_ACROSS, unsigned COLUMNS>
__device__ inline void multiply(const char *a, const char *b, const void *bias, void *y, float *parts, const Problem &of) {
    const unsigned SIZE = (ROWS + COLUMNS) * STEP * 2, B_AT = ROWS * STEP * 2;
    unsigned stages = (unsigned)__cvta_generic_to_shared(memory), group = threadIdx.x / 128;
    Tile tile(of);
    go_to(tile.product, of, 2, a, b);
    unsigned k = min(tile.part * of.part, of.k), end = min(k + of.part, of.k), count = (end - k + STEP - 1) / STEP;
    Operand<A_ACROSS, ROWS> left(a, of.images.depth, of.m, tile.row * ROWS, k, end);
    Operand<B_ACROSS, COLUMNS> right(b, B_ACROSS ? of.n : of.b_line, of.n, tile.column * COLUMNS, k, end);
    float sums[COLUMNS / 2] = {};

    auto bring = [&](unsigned stage) {
        if (stage < count) {
            unsigned to = stages + stage % STAGES * SIZE;
            left.bring(to, stage * STEP, end - k);
            right.bring(to + B_AT, stage * STEP, end - k);
        }
        commit();
    };
#pragma unroll 1
    for (unsigned stage = 0; stage < STAGES - 2; stage++) bring(stage);
#pragma unroll 1
    for (unsigned stage = 0; stage < count; stage++) {
        // The tensor cores read shared memory through another proxy than the copies write it.
        wait<STAGES - 3>();
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
        unsigned from = stages + stage % STAGES * SIZE;
        Index own_a = descriptor<A_ACROSS>(from + group * ATOM), own_b = descriptor<B_ACROSS>(from + B_AT);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (unsigned at = 0; at < STEP / 16; at++)
            Type::template multiply<A_ACROSS, B_ACROSS>(sums, own_a + at * step_size<A_ACROSS>() / 16,
                                                        own_b + at * step_size<B_ACROSS>() / 16);
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        // All warpgroups have multiplied the stage before the last one.
        bring(stage + STAGES - 2);
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    wait<0>();
    __syncthreads();

    // The sums go through shared memory, so that threads store whole chunks.
    float *staged = (float *)memory;
    unsigned row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
#pragma unroll
    for (unsigned i = 0; i < COLUMNS / 2; i += 2) {
        unsigned column = i / 4 * 8 + threadIdx.x % 4 * 2;
        *(float2 *)(staged + staged_at<COLUMNS>(row + i % 4 / 2 * 8, column)) = make_float2(sums[i], sums[i + 1]);
    }
    __syncthreads();
    store_tile<Type, ROWS, COLUMNS>(of, tile, staged, bias, y, parts);
}

#define KERNEL(NAME, TYPE, A_ACROSS, B_ACROSS, COLUMNS)                                                                                    \
    extern "C" __global__ void __launch_bounds__(GROUPS_THREADS, 1) warpgroup_##NAME(                                                      \
        unsigned *fault, unsigned step, const char *a, const char *b, const void *bias, void *y, float *parts,                             \
        const __grid_constant__ Problem of) {                                                                                              \
        GUARD;                                                                                                                             \
        multiply<TYPE, A_ACROSS, B_ACROSS, COLUMNS>(a, b, bias, y, parts, of);                                                             \
    }
// For each kind of operands: `n` for rows of lines, `t` for transposed ones.
#define KERNELS(NAME, TYPE)                                                                                                                \
    KERNEL(NAME##_nn_256, TYPE, false, true, 256)                                                                                          \
    KERNEL(NAME##_nt_256, TYPE, false, false, 256)                                                                                         \
    KERNEL(NAME##_tn_256, TYPE, true, true, 256)                                                                                           \
    KERNEL(NAME##_nn_128, TYPE, false, true, 128)                                                                                          \
    KERNEL(NAME##_nt_128, TYPE, false, false, 128)                                                                                         \
    KERNEL(NAME##_tn_128, TYPE, true, true, 128)

KERNELS(f16, F16)
