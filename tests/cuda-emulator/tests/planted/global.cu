// Mistakes with global memory. Each kernel has a twin, whose name ends with `_right`, that makes no mistake.
//
// All kernels of these files take the same parameters: `n` numbers to write and `n` to read. They are launched with 4 blocks of 64
// threads, so there are `n` threads.

#define KERNEL(name) extern "C" __global__ void name(float *out, const float *in, unsigned n)
#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)

// Reads the element after the last one.
KERNEL(read_past_end) { out[INDEX] = in[INDEX + 1]; }
KERNEL(read_past_end_right) { out[INDEX] = in[(INDEX + 1) % n]; }

// Writes the element after the last one.
KERNEL(write_past_end) { out[INDEX + 1] = in[INDEX]; }
KERNEL(write_past_end_right) { out[(INDEX + 1) % n] = in[INDEX]; }

// Reads the element before the first one.
KERNEL(read_before_start) { out[INDEX] = in[(int)INDEX - 1]; }
KERNEL(read_before_start_right) { out[INDEX] = in[INDEX == 0 ? 0 : INDEX - 1]; }

// An atomic access past the end.
KERNEL(atomic_past_end) { atomicAdd((unsigned *)out + INDEX + 1, 1u); }
KERNEL(atomic_past_end_right) { atomicAdd((unsigned *)out + INDEX, 1u); }

// Numbers at addresses that are not multiples of their size.
KERNEL(misaligned_f32) { out[INDEX] = *(const float *)((const char *)in + (INDEX % 64) * 4 + 2); }
KERNEL(misaligned_f32_right) { out[INDEX] = *(const float *)((const char *)in + (INDEX % 64) * 4 + 4); }

KERNEL(misaligned_f64) { out[INDEX] = (float)((const double *)(in + 1))[INDEX % 64]; }
KERNEL(misaligned_f64_right) { out[INDEX] = (float)((const double *)(in + 2))[INDEX % 64]; }

KERNEL(misaligned_vector) {
    float4 four = *(const float4 *)(in + (INDEX % 32) * 4 + 2);
    out[INDEX] = four.x + four.w;
}
KERNEL(misaligned_vector_right) {
    float4 four = *(const float4 *)(in + (INDEX % 32) * 4 + 4);
    out[INDEX] = four.x + four.w;
}

// Writes that are in bounds, at twice their index: the second half is past the end.
KERNEL(wrong_stride) { out[INDEX * 2] = in[INDEX]; }
KERNEL(wrong_stride_right) { out[INDEX] = in[INDEX]; }

// Blocks that write what other blocks read.
KERNEL(block_race) {
    out[INDEX] = in[INDEX];
    out[INDEX] += out[(INDEX + 64) % n];
}
KERNEL(block_race_right) {
    out[INDEX] = in[INDEX];
    out[INDEX] += in[(INDEX + 64) % n];
}

// A sum without atomics.
KERNEL(counter_race) { *(volatile unsigned *)out += 1; }
KERNEL(counter_race_right) { atomicAdd((unsigned *)out, 1u); }

// Writes a constant of the module.
__constant__ float table[4] = {1, 2, 3, 4};
KERNEL(write_constant) {
    float *place;
    // The compiler drops writes that it knows to be wrong.
    asm volatile("mov.u64 %0, %1;" : "=l"(place) : "l"(table));
    place[INDEX % 4] = in[INDEX];
}
KERNEL(write_constant_right) { out[INDEX] = table[INDEX % 4]; }

// Copies: for mistakes of the host.
KERNEL(copy) { out[INDEX] = in[INDEX]; }
