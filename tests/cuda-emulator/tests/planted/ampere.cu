// Mistakes with asynchronous copies, barriers of some warps and matrices. See global.cu for the parameters.

typedef unsigned u32;
#define KERNEL(name) extern "C" __global__ void name(float *out, const float *in, unsigned n)
#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)
#define COMMIT asm volatile("cp.async.commit_group;" ::: "memory")
#define WAIT(left) asm volatile("cp.async.wait_group " #left ";" ::: "memory")
#define OTHER ((threadIdx.x + 32) % 64)

__device__ u32 shared_address(const volatile void *pointer) { return (u32)__cvta_generic_to_shared((const void *)pointer); }

// Begins a copy of 4 bytes.
__device__ void copy(volatile float *to, const float *from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to)), "l"(from) : "memory");
}

// Reads what nobody has waited for.
#define MISSING_WAIT(name, wait)                                                                                                    \
    KERNEL(name) {                                                                                                                  \
        __shared__ volatile float tile[64];                                                                                         \
        copy(&tile[threadIdx.x], in + INDEX);                                                                                       \
        COMMIT;                                                                                                                     \
        wait;                                                                                                                       \
        __syncthreads();                                                                                                            \
        out[INDEX] = tile[OTHER];                                                                                                   \
    }
MISSING_WAIT(missing_wait, )
MISSING_WAIT(missing_wait_right, WAIT(0))

// Waits for groups, but the copy is in none.
#define MISSING_COMMIT(name, commit)                                                                                                \
    KERNEL(name) {                                                                                                                  \
        __shared__ volatile float tile[64];                                                                                         \
        copy(&tile[threadIdx.x], in + INDEX);                                                                                       \
        commit;                                                                                                                     \
        WAIT(0);                                                                                                                    \
        __syncthreads();                                                                                                            \
        out[INDEX] = tile[OTHER];                                                                                                   \
    }
MISSING_COMMIT(missing_commit, )
MISSING_COMMIT(missing_commit_right, COMMIT)

// Waits for the first one of two copies, and reads the second one.
#define WAIT_FOR_TOO_FEW(name, left)                                                                                                \
    KERNEL(name) {                                                                                                                  \
        __shared__ volatile float tile[128];                                                                                        \
        copy(&tile[threadIdx.x], in + INDEX);                                                                                       \
        COMMIT;                                                                                                                     \
        copy(&tile[64 + threadIdx.x], in + INDEX);                                                                                  \
        COMMIT;                                                                                                                     \
        WAIT(left);                                                                                                                 \
        __syncthreads();                                                                                                            \
        out[INDEX] = tile[OTHER] + tile[64 + OTHER];                                                                                \
    }
WAIT_FOR_TOO_FEW(wait_for_too_few, 1)
WAIT_FOR_TOO_FEW(wait_for_too_few_right, 0)

// Reads what another thread has waited for, without a barrier.
#define COPY_WITHOUT_BARRIER(name, barrier)                                                                                         \
    KERNEL(name) {                                                                                                                  \
        __shared__ volatile float tile[64];                                                                                         \
        copy(&tile[threadIdx.x], in + INDEX);                                                                                       \
        COMMIT;                                                                                                                     \
        WAIT(0);                                                                                                                    \
        barrier;                                                                                                                    \
        out[INDEX] = tile[threadIdx.x ^ 1];                                                                                         \
    }
COPY_WITHOUT_BARRIER(copy_without_barrier, )
COPY_WITHOUT_BARRIER(copy_without_barrier_right, __syncthreads())

// Copies the next stage over one that other threads still read.
#define STAGE_TOO_EARLY(name, barrier)                                                                                              \
    KERNEL(name) {                                                                                                                  \
        __shared__ volatile float tile[64];                                                                                         \
        float sum = 0;                                                                                                              \
        for (u32 step = 0; step < 2; step++) {                                                                                      \
            copy(&tile[threadIdx.x], in + INDEX);                                                                                   \
            COMMIT;                                                                                                                 \
            WAIT(0);                                                                                                                \
            __syncthreads();                                                                                                        \
            sum += tile[OTHER];                                                                                                     \
            barrier;                                                                                                                \
        }                                                                                                                           \
        out[INDEX] = sum;                                                                                                           \
    }
STAGE_TOO_EARLY(stage_too_early, )
STAGE_TOO_EARLY(stage_too_early_right, __syncthreads())

// Stores to where a copy is on its way.
#define COPY_OVERWRITTEN(name, store)                                                                                               \
    KERNEL(name) {                                                                                                                  \
        __shared__ volatile float tile[64];                                                                                         \
        copy(&tile[threadIdx.x], in + INDEX);                                                                                       \
        COMMIT;                                                                                                                     \
        if (threadIdx.x == store) tile[9] = 0;                                                                                      \
        WAIT(0);                                                                                                                    \
        __syncthreads();                                                                                                            \
        out[INDEX] = tile[OTHER];                                                                                                   \
    }
COPY_OVERWRITTEN(copy_overwritten, 9)
COPY_OVERWRITTEN(copy_overwritten_right, 99)

// Copies 16 bytes from an address that is no multiple of 16.
#define MISALIGNED_COPY(name, offset)                                                                                               \
    KERNEL(name) {                                                                                                                  \
        __shared__ __align__(16) volatile float tile[256];                                                                          \
        const float *from = in + 4 * threadIdx.x + (threadIdx.x == 5 ? offset : 0);                                                 \
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(tile + 4 * threadIdx.x)), "l"(from)           \
                     : "memory");                                                                                                   \
        asm volatile("cp.async.wait_all;" ::: "memory");                                                                            \
        __syncthreads();                                                                                                            \
        out[INDEX] = tile[4 * OTHER];                                                                                               \
    }
MISALIGNED_COPY(misaligned_copy, 1)
MISALIGNED_COPY(misaligned_copy_right, 4)

// Copies past the end, where a smaller size of the source would give zeros.
#define ASYNC_PAST_END(name, size)                                                                                                  \
    KERNEL(name) {                                                                                                                  \
        __shared__ __align__(16) volatile float tile[256];                                                                          \
        const float *from = in + 4 * threadIdx.x + 8;                                                                               \
        u32 used = 4 * threadIdx.x + 8 < n ? 16 : size;                                                                             \
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(tile + 4 * threadIdx.x)), "l"(from),      \
                     "r"(used) : "memory");                                                                                         \
        asm volatile("cp.async.wait_all;" ::: "memory");                                                                            \
        __syncthreads();                                                                                                            \
        out[INDEX] = tile[4 * OTHER];                                                                                               \
    }
ASYNC_PAST_END(async_past_end, 16)
ASYNC_PAST_END(async_past_end_right, 0)

// Loads a matrix of which a row begins in the middle of 16 bytes.
#define MATRIX(name, address, filled)                                                                                               \
    KERNEL(name) {                                                                                                                  \
        __shared__ __align__(16) volatile float tile[64];                                                                           \
        if (threadIdx.x < filled) tile[threadIdx.x] = in[INDEX];                                                                    \
        __syncthreads();                                                                                                            \
        u32 value;                                                                                                                  \
        asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(value) : "r"(shared_address(tile) + (address)));\
        out[INDEX] = value;                                                                                                         \
    }
MATRIX(misaligned_row, threadIdx.x % 8 * 20, 64)
MATRIX(misaligned_row_right, threadIdx.x % 8 * 32, 64)

// Loads a matrix of which nobody has written the last row.
MATRIX(unwritten_row, threadIdx.x % 8 * 16, 28)
MATRIX(unwritten_row_right, threadIdx.x % 8 * 16, 32)

// Half of a warp multiplies matrices.
#define PRODUCT(name, lanes)                                                                                                        \
    KERNEL(name) {                                                                                                                  \
        float d[4] = {};                                                                                                            \
        u32 a = threadIdx.x;                                                                                                        \
        if (threadIdx.x % 32 < lanes)                                                                                               \
            asm volatile("mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %4}, {%4}, {%0, %1, %2, %3};"   \
                         : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a));                                                \
        out[INDEX] = d[0];                                                                                                          \
    }
PRODUCT(divergent_product, 16)
PRODUCT(divergent_product_right, n)

// A barrier that one warp of two does not come to.
#define FEW_WARPS(name, number)                                                                                                     \
    KERNEL(name) {                                                                                                                  \
        asm volatile("bar.sync %0, 64;" ::"r"(threadIdx.x < 32 ? 1 : number) : "memory");                                           \
        out[INDEX] = 0;                                                                                                             \
    }
FEW_WARPS(lonely_barrier, 2)
FEW_WARPS(lonely_barrier_right, 1)

// A barrier for one warp at a time, where both share memory.
#define SMALL_BARRIER(name, number, threads)                                                                                        \
    KERNEL(name) {                                                                                                                  \
        __shared__ volatile float tile[64];                                                                                         \
        tile[threadIdx.x] = 0;                                                                                                      \
        __syncthreads();                                                                                                            \
        tile[threadIdx.x] = in[INDEX];                                                                                              \
        asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");                                                    \
        out[INDEX] = tile[OTHER];                                                                                                   \
    }
SMALL_BARRIER(small_barrier, 1 + threadIdx.x / 32, 32)
SMALL_BARRIER(small_barrier_right, 1, 64)

// Exchanges numbers through shared memory whose size the launch says, for the programs in devices.rs.
KERNEL(dynamic) {
    extern __shared__ volatile float tile[];
    tile[threadIdx.x] = in[INDEX];
    __syncthreads();
    out[INDEX] = tile[OTHER];
}
