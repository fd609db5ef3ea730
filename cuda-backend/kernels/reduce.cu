// Reductions: sums, products, extremes, any and all over some axes, and positions of extremes along one axis.
#include "formats.cuh"
#include "numbers.cuh"
#include "teams.cuh"

// The axes of a tensor, of which some are reduced. Neighbouring axes that are all reduced or all kept count as one. The innermost reduced
// axis is the run. A result has the elements of several runs, one for each position along the other reduced axes.
struct Groups {
    unsigned rank;
    unsigned kept;   // A bit for each axis, the lowest for the outermost.
    unsigned run;    // The number of the run's axis.
    unsigned extent; // The number of elements of a run.
    Axes dims;
};

// Position of the first element of run `run` of result `result`.
__device__ inline Index run_start(const Groups &groups, Index result, Index run) {
    Index stride = 1, start = 0;
#pragma unroll 1
    for (unsigned axis = groups.rank; axis-- > 0;) {
        unsigned dim = groups.dims.of[axis];
        if (axis != groups.run) {
            bool kept = groups.kept >> axis & 1;
            Index number = kept ? result : run;
            start += split(number, dim) * stride;
            (kept ? result : run) = number;
        }
        stride *= dim;
    }
    return start;
}

// The rules of the ops: the value without elements, how one element joins a value, and what comes last.
template <typename T> struct Sum {
    __device__ static T start() { return 0; }
    __device__ static T both(T a, T b) { return add(a, b); }
    __device__ static T last(T sum, Index) { return sum; }
};
template <typename T> struct Mean : Sum<T> {
    __device__ static T last(T sum, Index count) { return sum / (T)count; }
};
template <typename T> struct Product {
    __device__ static T start() { return 1; }
    __device__ static T both(T a, T b) { return mul(a, b); }
    __device__ static T last(T product, Index) { return product; }
};
template <typename T> struct Maximum {
    __device__ static T start() { return Limits<T>::least(); }
    // NaN if one of them is NaN.
    __device__ static T both(T a, T b) { return a <= b ? b : b < a ? a : add(a, b); }
    __device__ static T last(T greatest, Index) { return greatest; }
};
template <typename T> struct Minimum {
    __device__ static T start() { return Limits<T>::greatest(); }
    __device__ static T both(T a, T b) { return a >= b ? b : b > a ? a : add(a, b); }
    __device__ static T last(T least, Index) { return least; }
};
template <typename T> struct Any {
    __device__ static T start() { return 0; }
    __device__ static T both(T a, T b) { return a != 0 || b != 0; }
    __device__ static T last(T any, Index) { return any; }
};
template <typename T> struct All {
    __device__ static T start() { return 1; }
    __device__ static T both(T a, T b) { return a != 0 && b != 0; }
    __device__ static T last(T all, Index) { return all; }
};

// An element type that is computed in itself, as a format.
template <typename T> struct Plain {
    typedef T Stored;
    __device__ static T value(T stored) { return stored; }
    __device__ static T stored(T value) { return value; }
};

// The value of this thread's share of the elements of a result. The runs are numbered from 0 to below `runs`, and the distance between the
// elements of a run is `stride`.
template <typename Rule, typename Format>
__device__ inline auto own_share(const typename Format::Stored *x, const Groups &groups, Index result, Index runs, Index stride,
                                 const Team &team) {
    auto value = Rule::start();
    Index run = 0, at = own_number(team);
#pragma unroll 1
    while (true) {
        // Past the end of its run, the thread's next element is in a later one.
        Index further = at;
        at = split(further, groups.extent);
        run += further;
        if (run >= runs) return value;
        const typename Format::Stored *elements = x + run_start(groups, result, run);
#pragma unroll 4
        for (; at < groups.extent; at += team.members) value = Rule::both(value, Format::value(elements[at * stride]));
    }
}

// A team computes a result: each member reduces its share of the elements, in row-major order.
template <typename Rule, typename Format>
__device__ inline void reduce(const typename Format::Stored *x, typename Format::Stored *y, const Groups &groups, Index results, Index runs,
                              Index stride, const Team &team) {
#pragma unroll 1
    for (Index first = first_result(team); first < results; first += all_results(team)) {
        Index result = first + own_team(team);
        auto own = result < results ? own_share<Rule, Format>(x, groups, result, runs, stride, team) : Rule::start();
        auto value = together<Rule>(own, team);
        if (result < results && own_number(team) == 0) y[result] = Format::stored(Rule::last(value, runs * groups.extent));
    }
}

#define REDUCE_AS(dtype, T, op, Rule, Format)                                                                                              \
    extern "C" __global__ void TEAMS op##_##dtype(unsigned *fault, unsigned step, const T *x, T *y, const __grid_constant__ Groups groups, \
                                                  Index results, Index runs, Index stride, Team team) {                                    \
        GUARD;                                                                                                                             \
        reduce<Rule, Format>(x, y, groups, results, runs, stride, team);                                                                   \
    }
#define REDUCE(dtype, T, op, Rule) REDUCE_AS(dtype, T, op, Rule<T>, Plain<T>)
FOR_NUMBERS(REDUCE, sum, Sum)
FOR_FLOATS(REDUCE, mean, Mean)
FOR_NUMBERS(REDUCE, prod, Product)
FOR_NUMBERS(REDUCE, max, Maximum)
FOR_NUMBERS(REDUCE, min, Minimum)
REDUCE_AS(f16, unsigned short, sum, Sum<float>, F16)
REDUCE_AS(bf16, unsigned short, sum, Sum<float>, Bf16)
REDUCE_AS(f16, unsigned short, mean, Mean<float>, F16)
REDUCE_AS(bf16, unsigned short, mean, Mean<float>, Bf16)
REDUCE(bool, Bool, any, Any)
REDUCE(bool, Bool, all, All)

// The rules of argmax and argmin. NaN is never better.
template <typename T> struct Greatest {
    __device__ static T start() { return Limits<T>::least(); }
    __device__ static bool better(T x, T best) { return x > best; }
};
template <typename T> struct Least {
    __device__ static T start() { return Limits<T>::greatest(); }
    __device__ static bool better(T x, T best) { return x < best; }
};

// Chooses the better one of two elements, or the first of two equal ones.
template <typename T, typename Order> struct Better {
    __device__ static Found<T> both(Found<T> a, Found<T> b) {
        return Order::better(b.value, a.value) || (b.value == a.value && b.position < a.position) ? b : a;
    }
};

// A team finds the position of the best element of a lane, 0 if no element is better than the start. Writes it as i64 if `wide` is 1, and
// as i32 if it is 0.
template <typename Order, typename T>
__device__ inline void find(const T *x, void *y, unsigned wide, const Lanes &lanes, const Team &team) {
    for (Index first = first_result(team); first < lanes.count; first += all_results(team)) {
        Index result = first + own_team(team);
        Lane own = lane(lanes, result);
        Found<T> best = {Order::start(), 0};
        for (Index at = own_number(team); at < own.extent; at += team.members) {
            T value = x[own.at(at)];
            if (Order::better(value, best.value)) best = {value, (typename Found<T>::Position)at};
        }
        best = together<Better<T, Order>>(best, team);
        if (result >= lanes.count || own_number(team) > 0) continue;
        if (wide)
            ((long long *)y)[result] = best.position;
        else
            ((int *)y)[result] = (int)best.position;
    }
}

#define FIND(dtype, T, op, Order)                                                                                                          \
    extern "C" __global__ void TEAMS op##_##dtype(unsigned *fault, unsigned step, const T *x, void *y, Index count, Index stride,          \
                                                  unsigned extent, Team team, unsigned wide) {                                             \
        GUARD;                                                                                                                             \
        find<Order<T>>(x, y, wide, Lanes{count, stride, extent}, team);                                                                    \
    }
FOR_NUMBERS(FIND, argmax, Greatest)
FOR_NUMBERS(FIND, argmin, Least)
