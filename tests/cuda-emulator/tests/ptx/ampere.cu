// Instructions of compute capability 8.0. Each lane has its own registers of a fragment.

typedef unsigned u32;
typedef unsigned short u16;
#define KERNEL(name, ...) extern "C" __global__ void name(__VA_ARGS__)
#define LANE threadIdx.x

__device__ u32 shared_address(const void *pointer) { return (u32)__cvta_generic_to_shared(pointer); }

// d = a · b + c, with 4 registers of a and 2 of b.
#define PRODUCT_4_2(name, shape, kind)                                                                                              \
    KERNEL(name, const u32 *a, const u32 *b, const float *c, float *d) {                                                            \
        a += 4 * LANE, b += 2 * LANE, c += 4 * LANE, d += 4 * LANE;                                                                 \
        asm("mma.sync.aligned." shape ".row.col.f32." kind "." kind ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "           \
            "{%10, %11, %12, %13};"                                                                                                 \
            : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])                                                                        \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));        \
    }
PRODUCT_4_2(product_f16_16, "m16n8k16", "f16")
PRODUCT_4_2(product_bf16_16, "m16n8k16", "bf16")
PRODUCT_4_2(product_tf32_8, "m16n8k8", "tf32")

// d = a · b + c, with 2 registers of a and 1 of b.
#define PRODUCT_2_1(name, shape, kind)                                                                                              \
    KERNEL(name, const u32 *a, const u32 *b, const float *c, float *d) {                                                            \
        a += 2 * LANE, b += LANE, c += 4 * LANE, d += 4 * LANE;                                                                     \
        asm("mma.sync.aligned." shape ".row.col.f32." kind "." kind ".f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"     \
            : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])                                                                        \
            : "r"(a[0]), "r"(a[1]), "r"(b[0]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));                                         \
    }
PRODUCT_2_1(product_f16_8, "m16n8k8", "f16")
PRODUCT_2_1(product_bf16_8, "m16n8k8", "bf16")
PRODUCT_2_1(product_tf32_4, "m16n8k4", "tf32")

// Loads matrices of 8 rows of 8 numbers. Row r of matrix m begins at number 8 · order(8m + r) of the tile.
#define MATRICES(name, count, modifiers, registers, ...)                                                                            \
    KERNEL(name, const u16 *in, const u32 *order, u32 *out) {                                                                       \
        __shared__ __align__(16) u16 tile[256];                                                                                     \
        for (u32 i = LANE; i < 256; i += 32) tile[i] = in[i];                                                                       \
        __syncthreads();                                                                                                            \
        u32 r[4] = {};                                                                                                              \
        asm volatile("ldmatrix.sync.aligned.m8n8." modifiers ".shared.b16 " registers ";"                                           \
                     : __VA_ARGS__ : "r"(shared_address(tile + 8 * order[LANE])));                                                  \
        for (u32 i = 0; i < count; i++) out[count * LANE + i] = r[i];                                                               \
    }
MATRICES(matrices_1, 1, "x1", "{%0}, [%1]", "=r"(r[0]))
MATRICES(matrices_2, 2, "x2", "{%0, %1}, [%2]", "=r"(r[0]), "=r"(r[1]))
MATRICES(matrices_4, 4, "x4", "{%0, %1, %2, %3}, [%4]", "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]))
MATRICES(transposed_1, 1, "x1.trans", "{%0}, [%1]", "=r"(r[0]))
MATRICES(transposed_4, 4, "x4.trans", "{%0, %1, %2, %3}, [%4]", "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]))

// Copies 64 floats per step through three stages of dynamic shared memory, two steps ahead. The last step is cut to `rest` bytes for each
// thread of four floats, and the others are zeros.
KERNEL(pipeline, const float *in, float *out, u32 steps, u32 rest) {
    extern __shared__ __align__(16) float stages[];
    auto begin = [&](u32 step) {
        if (step < steps) {
            u32 used = step + 1 < steps ? 16 : rest;
            u32 to = shared_address(stages + 64 * (step % 3) + 4 * LANE);
            asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(in + 64 * step + 4 * LANE), "r"(used)
                         : "memory");
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    begin(0);
    begin(1);
    for (u32 step = 0; step < steps; step++) {
        asm volatile("cp.async.wait_group 1;" ::: "memory");
        __syncthreads();
        begin(step + 2);
        for (u32 i = 0; i < 4; i++) out[64 * step + 16 * i + LANE] = stages[64 * (step % 3) + (16 * i + LANE + 5) % 64];
    }
}

// Copies of 4 and 8 bytes for each thread, and a wait for all of them.
KERNEL(small_copies, const float *in, float *out) {
    __shared__ __align__(16) float tile[96];
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(tile + LANE)), "l"(in + LANE) : "memory");
    u32 to = shared_address(tile + 32 + 2 * LANE);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(to), "l"(in + 32 + 2 * LANE) : "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    for (u32 i = 0; i < 96; i += 32) out[i + LANE] = tile[95 - i - LANE];
}

// Two groups of two warps, each with a barrier of its own, and a fifth warp that writes what both read, handed on by arrivals.
KERNEL(groups, const float *in, float *out) {
    __shared__ float tiles[2][64], common[32];
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (warp == 4) {
        common[lane] = in[128 + lane];
        asm volatile("bar.arrive 3, 160;" ::: "memory");
        asm volatile("bar.sync 4, 160;" ::: "memory");
        common[lane] = 0;
        return;
    }
    u32 group = warp / 2, index = threadIdx.x % 64;
    for (u32 step = 0; step <= group; step++) {
        tiles[group][index] = in[threadIdx.x] + step;
        asm volatile("bar.sync %0, 64;" ::"r"(group + 1) : "memory");
        float other = tiles[group][63 - index];
        asm volatile("bar.sync %0, 64;" ::"r"(group + 1) : "memory");
        out[threadIdx.x] = other;
    }
    asm volatile("bar.sync 3, 160;" ::: "memory");
    out[threadIdx.x] += common[lane];
    asm volatile("bar.arrive 4, 160;" ::: "memory");
}

// Conversions and arithmetic of f16, bf16 and TF32, of pairs of numbers.
KERNEL(packed, const float *in, u32 *out) {
    float a = in[3 * LANE], b = in[3 * LANE + 1], c = in[3 * LANE + 2];
    out += 16 * LANE;
    u32 halves, other, third, brains, brains_b, brains_c;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(halves) : "f"(a), "f"(b));
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(other) : "f"(b), "f"(c));
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(third) : "f"(c), "f"(a));
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(brains) : "f"(a), "f"(b));
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(brains_b) : "f"(b), "f"(c));
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(brains_c) : "f"(c), "f"(a));
    out[0] = halves;
    out[1] = brains;
    asm("add.f16x2 %0, %1, %2;" : "=r"(out[2]) : "r"(halves), "r"(other));
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(out[3]) : "r"(halves), "r"(other));
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(out[4]) : "r"(halves), "r"(other), "r"(third));
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(out[5]) : "r"(brains), "r"(brains_b), "r"(brains_c));
    asm("max.bf16x2 %0, %1, %2;" : "=r"(out[6]) : "r"(brains), "r"(brains_b));
    asm("neg.bf16x2 %0, %1;" : "=r"(out[7]) : "r"(brains));
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(out[8]) : "f"(a));
    u16 one;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(one) : "f"(a));
    out[9] = one;
    asm("cvt.rz.bf16.f32 %0, %1;" : "=h"(one) : "f"(a));
    out[10] = one;
    asm("redux.sync.max.s32 %0, %1, 0xffffffff;" : "=r"(out[11]) : "r"((int)a));
    asm("redux.sync.xor.b32 %0, %1, 0xffffffff;" : "=r"(out[12]) : "r"(brains));
    asm("cvt.rz.f16x2.f32 %0, %1, %2;" : "=r"(out[13]) : "f"(a), "f"(b));
}

__device__ void copy(u16 *to, const u16 *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}

// A product of matrices of bf16: 128 × 128 × depth, a block of four warps, three stages.
KERNEL(tiled_product, const u16 *a, const u16 *b, float *out, u32 depth) {
    extern __shared__ __align__(16) u16 memory[];
    const u32 pitch = 40;
    u16 *left = memory, *right = memory + 3 * 128 * pitch;
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    auto begin = [&](u32 step) {
        if (step * 32 < depth)
            for (u32 i = threadIdx.x; i < 512; i += 128) {
                u32 row = i / 4, column = i % 4 * 8, place = (step % 3 * 128 + row) * pitch + column;
                copy(left + place, a + row * depth + step * 32 + column);
                copy(right + place, b + row * depth + step * 32 + column);
            }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    float sums[2][16][4] = {};
    begin(0);
    begin(1);
    for (u32 step = 0; step * 32 < depth; step++) {
        asm volatile("cp.async.wait_group 1;" ::: "memory");
        __syncthreads();
        begin(step + 2);
        for (u32 k = 0; k < 32; k += 16) {
            u32 x[2][4];
            for (u32 m = 0; m < 2; m++)
                asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                             : "=r"(x[m][0]), "=r"(x[m][1]), "=r"(x[m][2]), "=r"(x[m][3])
                             : "r"(shared_address(left + (step % 3 * 128 + warp * 32 + m * 16 + lane % 16) * pitch + k + lane / 16 * 8)));
            for (u32 n = 0; n < 16; n++) {
                u32 y[2];
                asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(y[0]), "=r"(y[1])
                             : "r"(shared_address(right + (step % 3 * 128 + n * 8 + lane % 8) * pitch + k + lane / 8 % 2 * 8)));
                for (u32 m = 0; m < 2; m++)
                    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                                 "{%0, %1, %2, %3};"
                                 : "+f"(sums[m][n][0]), "+f"(sums[m][n][1]), "+f"(sums[m][n][2]), "+f"(sums[m][n][3])
                                 : "r"(x[m][0]), "r"(x[m][1]), "r"(x[m][2]), "r"(x[m][3]), "r"(y[0]), "r"(y[1]));
            }
        }
    }
    for (u32 m = 0; m < 2; m++)
        for (u32 n = 0; n < 16; n++)
            for (u32 i = 0; i < 4; i++) {
                u32 row = warp * 32 + m * 16 + lane / 4 + i / 2 * 8, column = n * 8 + lane % 4 * 2 + i % 2;
                out[row * 128 + column] = sums[m][n][i];
            }
}
