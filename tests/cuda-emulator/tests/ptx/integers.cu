// Integers, bits and conversions. Each kernel writes one row of results for each thread.
typedef long long i64;
typedef unsigned long long u64;

extern "C" __global__ void words(const int *a, const int *b, int *out) {
    int i = threadIdx.x, x = a[i], y = b[i];
    unsigned u = x, v = y;
    int *row = out + i * 32, k = 0;
    row[k++] = x + y;
    row[k++] = x - y;
    row[k++] = x * y;
    row[k++] = y ? x / y : 0;
    row[k++] = y ? x % y : 0;
    row[k++] = v ? u / v : 0;
    row[k++] = v ? u % v : 0;
    row[k++] = __mulhi(x, y);
    row[k++] = __umulhi(u, v);
    row[k++] = min(x, y);
    row[k++] = max(u, v);
    row[k++] = abs(x);
    row[k++] = x >> (y & 31);
    row[k++] = u >> (y & 31);
    row[k++] = x << (y & 31);
    row[k++] = __popc(u);
    row[k++] = __clz(x);
    row[k++] = __brev(u);
    row[k++] = __ffs(x);
    row[k++] = __byte_perm(x, y, 0x5140);
    row[k++] = __funnelshift_l(x, y, 7);
    row[k++] = __funnelshift_r(x, y, 40);
    row[k++] = (x & y) ^ (~x | y);
    row[k++] = (short)x * (short)y;
    row[k++] = (signed char)x;
    row[k++] = (unsigned short)y;
    row[k++] = __dp4a(x, y, 5);
    row[k++] = __sad(x, y, 3u);
    row[k++] = x < y ? (u < v ? 1 : 2) : (u < v ? 3 : 4);
    row[k++] = (short)((short)x >> 3) + (unsigned short)((unsigned short)y >> 3);
    row[k++] = x == y;
    row[k++] = __float_as_int((float)x);
}

extern "C" __global__ void longs(const i64 *a, const i64 *b, i64 *out) {
    int i = threadIdx.x, k = 0;
    i64 x = a[i], y = b[i];
    u64 u = x, v = y;
    i64 *row = out + i * 16;
    row[k++] = y ? x / y : 0;
    row[k++] = y ? x % y : 0;
    row[k++] = v ? u / v : 0;
    row[k++] = v ? u % v : 0;
    row[k++] = __mul64hi(x, y);
    row[k++] = __umul64hi(u, v);
    row[k++] = __popcll(u);
    row[k++] = __clzll(x);
    row[k++] = __brevll(u);
    row[k++] = x >> (y & 63);
    row[k++] = u >> (y & 63);
    row[k++] = x << (y & 63);
    unsigned __int128 q = (unsigned __int128)u * v + u;
    row[k++] = (i64)(q >> 64);
    row[k++] = (i64)q;
    row[k++] = (i64)((q - v) >> 64);
    row[k++] = v ? (i64)(q / v) : 0;
}

extern "C" __global__ void conversions(const double *a, i64 *out) {
    int i = threadIdx.x, k = 0;
    double x = a[i];
    float f = (float)x;
    i64 *row = out + i * 24;
    row[k++] = __double2int_rz(x);
    row[k++] = __double2int_rn(x);
    row[k++] = __double2int_ru(x);
    row[k++] = __double2int_rd(x);
    row[k++] = __double2ll_rz(x);
    row[k++] = __double2ull_rn(x);
    row[k++] = __float2int_rn(f);
    row[k++] = __float2uint_rz(f);
    row[k++] = __float2ll_rd(f);
    row[k++] = __float_as_int(__double2float_rz(x));
    row[k++] = __float_as_int(__double2float_ru(x));
    row[k++] = __float_as_int(__double2float_rd(x));
    row[k++] = __float_as_int(__int2float_rz((int)x * 16777259));
    row[k++] = __float_as_int(__ll2float_ru((i64)x * 16777259));
    row[k++] = __float_as_int(__fadd_rz(f, 0.1f));
    row[k++] = __float_as_int(__fmul_ru(f, 0.1f));
    row[k++] = __float_as_int(__fdiv_rd(f, 3.0f));
    row[k++] = __float_as_int(__fsqrt_ru(fabsf(f)));
    row[k++] = __double_as_longlong(__dadd_rz(x, 0.1));
    row[k++] = __double_as_longlong(__dmul_rd(x, 0.1));
    row[k++] = __double_as_longlong(__fma_rn(x, x, 0.1));
    unsigned short half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(f));
    row[k++] = half;
    float back;
    asm("cvt.f32.f16 %0, %1;" : "=f"(back) : "h"(half));
    row[k++] = __float_as_int(back);
    int narrow;
    asm("cvt.sat.s8.s32 %0, %1;" : "=r"(narrow) : "r"((int)x));
    row[k++] = narrow;
}
