// Products of four warps, which only compute capability 9.0 has.

typedef unsigned u32;
typedef unsigned long long u64;
#define KERNEL(name, ...) extern "C" __global__ void name(__VA_ARGS__)

__device__ u32 shared_address(const void *pointer) { return (u32)__cvta_generic_to_shared(pointer); }

// Where a factor is in shared memory: its first byte, the leading and the stride offset, and the mode of its swizzle.
struct Layout {
    u32 start, leading, stride, swizzle;
};

__device__ u64 descriptor(u32 base, Layout layout) {
    u64 address = (base + layout.start) >> 4 & 0x3fff;
    return address | (u64)(layout.leading >> 4) << 16 | (u64)(layout.stride >> 4) << 32 | (u64)layout.swizzle << 62;
}

// Fills shared memory with an image, and lets products read it.
__device__ u32 fill(const u32 *image, u32 words) {
    extern __shared__ __align__(1024) u32 memory[];
    for (u32 i = threadIdx.x; i < words; i += blockDim.x) memory[i] = image[i];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    return shared_address(memory);
}

#define FENCE asm volatile("wgmma.fence.sync.aligned;" ::: "memory")
#define COMMIT asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory")
#define WAIT(left) asm volatile("wgmma.wait_group.sync.aligned " #left ";" ::: "memory")
#define SUMS_4(d) "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
#define SUMS_8(d) SUMS_4(d), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])

// d = a · b + (if `accumulates`) d, for 8 and 16 columns.
#define PRODUCT_8(name, shape, kind, flags)                                                                                         \
    KERNEL(name, const u32 *image, u32 words, float *sums, Layout left, Layout right, u32 accumulates) {                            \
        u32 base = fill(image, words);                                                                                              \
        float *d = sums + 4 * threadIdx.x, r[4] = {d[0], d[1], d[2], d[3]};                                                         \
        FENCE;                                                                                                                      \
        asm volatile("{ .reg .pred p; setp.ne.b32 p, %6, 0; wgmma.mma_async.sync.aligned." shape ".f32." kind "." kind              \
                     " {%0, %1, %2, %3}, %4, %5, p, " flags "; }"                                                                   \
                     : SUMS_4(r) : "l"(descriptor(base, left)), "l"(descriptor(base, right)), "r"(accumulates));                    \
        COMMIT;                                                                                                                     \
        WAIT(0);                                                                                                                    \
        for (u32 i = 0; i < 4; i++) d[i] = r[i];                                                                                    \
    }
PRODUCT_8(f16_8, "m64n8k16", "f16", "1, 1, 0, 0")
PRODUCT_8(bf16_8_negated, "m64n8k16", "bf16", "1, -1, 0, 0")
PRODUCT_8(tf32_8, "m64n8k8", "tf32", "1, 1")

#define PRODUCT_16(name, flags)                                                                                                     \
    KERNEL(name, const u32 *image, u32 words, float *sums, Layout left, Layout right, u32 accumulates) {                            \
        u32 base = fill(image, words);                                                                                              \
        float *d = sums + 8 * threadIdx.x, r[8];                                                                                    \
        for (u32 i = 0; i < 8; i++) r[i] = d[i];                                                                                    \
        FENCE;                                                                                                                      \
        asm volatile("{ .reg .pred p; setp.ne.b32 p, %10, 0; wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 "                   \
                     "{%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, p, " flags "; }"                                                    \
                     : SUMS_8(r) : "l"(descriptor(base, left)), "l"(descriptor(base, right)), "r"(accumulates));                    \
        COMMIT;                                                                                                                     \
        WAIT(0);                                                                                                                    \
        for (u32 i = 0; i < 8; i++) d[i] = r[i];                                                                                    \
    }
PRODUCT_16(f16_16, "1, 1, 0, 0")
PRODUCT_16(f16_16_left, "1, 1, 1, 0")
PRODUCT_16(f16_16_right, "1, 1, 0, 1")
PRODUCT_16(f16_16_both, "-1, 1, 1, 1")

// The left factor in registers.
KERNEL(f16_registers, const u32 *image, u32 words, float *sums, const u32 *a, Layout right) {
    u32 base = fill(image, words);
    float *d = sums + 8 * threadIdx.x, r[8];
    a += 4 * threadIdx.x;
    u32 x[4] = {a[0], a[1], a[2], a[3]};
    for (u32 i = 0; i < 8; i++) r[i] = d[i];
    FENCE;
    asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11}, %12, 1, 1, 1, 0;"
                 : SUMS_8(r) : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "l"(descriptor(base, right)));
    COMMIT;
    WAIT(0);
    for (u32 i = 0; i < 8; i++) d[i] = r[i];
}

// A product of matrices of f16 with 128 rows, 16 columns and a depth of 64 for each step. Two warpgroups have 64 rows each. A product is
// always on its way while the next stage is filled. With three stages instead of four, this may be a stage that the other warpgroup still
// reads.
KERNEL(stages, const u32 *a, const u32 *b, float *out, u32 steps, u32 count) {
    extern __shared__ __align__(1024) u32 memory[];
    const u32 left = 2 * 64 * 32, stage = left + 16 * 32;
    u32 group = threadIdx.x / 128;
    float r[8] = {};
    auto begin = [&](u32 step) {
        if (step < steps)
            for (u32 i = threadIdx.x; i < stage / 4; i += 256) {
                // 16 bytes of a row of 128 bytes, swizzled.
                u32 row = i / 8, place = row * 32 + (i % 8 ^ row % 8) * 4;
                const u32 *from = row < 128 ? a + (row * steps + step) * 32 : b + ((row - 128) * steps + step) * 32;
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(memory + step % count * stage + place)),
                             "l"(from + i % 8 * 4) : "memory");
            }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    begin(0);
    for (u32 step = 0; step < steps; step++) {
        begin(step + 1);
        asm volatile("cp.async.wait_group 1;" ::: "memory");
        asm volatile("fence.proxy.async;" ::: "memory");
        __syncthreads();
        u32 base = shared_address(memory + step % count * stage);
        FENCE;
        for (u32 k = 0; k < 4; k++)
            asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, "
                         "1, 1, 1, 0, 0;"
                         : SUMS_8(r)
                         : "l"(descriptor(base, Layout{group * 64 * 128 + 32 * k, 0, 1024, 1})),
                           "l"(descriptor(base, Layout{left * 4 + 32 * k, 0, 1024, 1})));
        COMMIT;
        WAIT(1);
    }
    WAIT(0);
    for (u32 i = 0; i < 8; i++) out[8 * threadIdx.x + i] = r[i];
}

// The lane that is elected.
KERNEL(elected, u32 *out) {
    u32 lane, is_leader;
    asm volatile("{ .reg .pred p; elect.sync %0|p, 0xffffffff; selp.u32 %1, 1, 0, p; }" : "=r"(lane), "=r"(is_leader));
    out[threadIdx.x] = 10 * lane + is_leader;
}
