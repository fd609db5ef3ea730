// Mistakes with products of four warps. See global.cu for the parameters. A block has 128 threads.

typedef unsigned u32;
typedef unsigned long long u64;
#define KERNEL(name) extern "C" __global__ void name(float *out, const float *in, unsigned n)
#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)
#define PROXY_FENCE asm volatile("fence.proxy.async.shared::cta;" ::: "memory")
#define FENCE asm volatile("wgmma.fence.sync.aligned;" ::: "memory")
#define COMMIT asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory")
#define WAIT(left) asm volatile("wgmma.wait_group.sync.aligned " #left ";" ::: "memory")

__device__ u32 shared_address(const volatile void *pointer) { return (u32)__cvta_generic_to_shared((const void *)pointer); }

// The descriptor of a matrix of TF32 with a depth of 8, without a swizzle.
__device__ u64 descriptor(const volatile void *matrix, u32 leading, u32 stride, u64 mode) {
    return shared_address(matrix) >> 4 | (u64)(leading >> 4) << 16 | (u64)(stride >> 4) << 32 | mode << 62;
}

// Multiplies 64 rows and 8 columns. The memory of the kernel: the left factor, then the right one.
#define MULTIPLY(d, a, b)                                                                                                           \
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {%0, %1, %2, %3}, %4, %5, 1, 1, 1;"                            \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b))

// A product, with what its steps do.
#define PRODUCT(name, leading, stride, mode, proxy_fence, before, fence, after, guard, commit, wait, late)                          \
    KERNEL(name) {                                                                                                                  \
        __shared__ __align__(1024) volatile float tile[576];                                                                        \
        for (u32 i = threadIdx.x; i < 576; i += 128) tile[i] = in[i % n];                                                           \
        proxy_fence;                                                                                                                \
        __syncthreads();                                                                                                            \
        float d[4] = {in[0], in[1], in[2], in[3]};                                                                                  \
        u64 a = descriptor(tile, leading, stride, mode), b = descriptor(tile + 512, 128, 0, 0);                                     \
        before;                                                                                                                     \
        fence;                                                                                                                      \
        after;                                                                                                                      \
        if (guard) MULTIPLY(d, a, b);                                                                                               \
        if (guard) commit;                                                                                                          \
        late;                                                                                                                       \
        if (guard) wait;                                                                                                            \
        out[INDEX] = d[0] + d[1] + d[2] + d[3];                                                                                     \
    }
#define TWINS(name, ...) PRODUCT(name, __VA_ARGS__)
#define RIGHT(name) PRODUCT(name, 128, 256, 0, PROXY_FENCE, , FENCE, , true, COMMIT, WAIT(0), )

// A product reads what stores wrote, without a fence between the two ways to access memory.
TWINS(missing_proxy_fence, 128, 256, 0, , , FENCE, , true, COMMIT, WAIT(0), )
RIGHT(missing_proxy_fence_right)

// An accumulator is read before the wait for its product.
TWINS(accumulator_too_early, 128, 256, 0, PROXY_FENCE, , FENCE, , true, COMMIT, , )
RIGHT(accumulator_too_early_right)

// A wait for groups, where the product is in none.
TWINS(product_without_commit, 128, 256, 0, PROXY_FENCE, , FENCE, , true, , WAIT(0), )
RIGHT(product_without_commit_right)

// A wait for all groups but the one that counts.
TWINS(product_without_wait, 128, 256, 0, PROXY_FENCE, , FENCE, , true, COMMIT, WAIT(1), )
RIGHT(product_without_wait_right)

// There is no fence before the first product.
TWINS(missing_register_fence, 128, 256, 0, PROXY_FENCE, , , , true, COMMIT, WAIT(0), )
RIGHT(missing_register_fence_right)

// An accumulator is written behind the fence.
#define CHANGE asm volatile("add.f32 %0, %0, 0f3F800000;" : "+f"(d[2]))
TWINS(register_after_fence, 128, 256, 0, PROXY_FENCE, , FENCE, CHANGE, true, COMMIT, WAIT(0), )
TWINS(register_after_fence_right, 128, 256, 0, PROXY_FENCE, CHANGE, FENCE, , true, COMMIT, WAIT(0), )

// An accumulator is written before the wait for its product.
#define CLEAR asm volatile("mov.f32 %0, 0f00000000;" : "+f"(d[1]))
TWINS(accumulator_overwritten, 128, 256, 0, PROXY_FENCE, , FENCE, , true, COMMIT, WAIT(0), CLEAR)
RIGHT(accumulator_overwritten_right)

// A store to a factor before the wait for the product.
TWINS(factor_overwritten, 128, 256, 0, PROXY_FENCE, , FENCE, , true, COMMIT, WAIT(0), tile[threadIdx.x / 32 * 128] = 0)
RIGHT(factor_overwritten_right)

// A descriptor whose rows are too far apart.
TWINS(wrong_stride_offset, 128, 512, 0, PROXY_FENCE, , FENCE, , true, COMMIT, WAIT(0), )
RIGHT(wrong_stride_offset_right)

// A descriptor that begins within the pattern of its swizzle.
TWINS(wrong_swizzle, 128, 256, 3, PROXY_FENCE, a += 128 >> 4, FENCE, , true, COMMIT, WAIT(0), )
RIGHT(wrong_swizzle_right)

// Warps with different descriptors.
TWINS(different_descriptors, 128, 256, 0, PROXY_FENCE, a += threadIdx.x / 64, FENCE, , true, COMMIT, WAIT(0), )
RIGHT(different_descriptors_right)

// One of the four warps does not take part.
TWINS(three_warps, 128, 256, 0, PROXY_FENCE, , FENCE, , threadIdx.x < 96, COMMIT, WAIT(0), )
RIGHT(three_warps_right)
