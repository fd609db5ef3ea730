// Softmax, its logarithm, and the cross entropy with class labels.
#include "numbers.cuh"
#include "teams.cuh"

__device__ inline float exponential(float x) { return expf(x); }
__device__ inline double exponential(double x) { return exp(x); }
__device__ inline float logarithm(float x) { return logf(x); }
__device__ inline double logarithm(double x) { return log(x); }

template <typename T> struct Sum {
    __device__ static T both(T a, T b) { return a + b; }
};
// Skips NaN.
template <typename T> struct Greatest {
    __device__ static T both(T a, T b) { return b > a ? b : a; }
};

// The greatest element of the team's lane, or minus infinity.
template <typename T>
__device__ inline T greatest(const T *x, const Lane &lane, const Team &team) {
    T value = Limits<T>::least();
    for (Index at = own_number(team); at < lane.extent; at += team.members) value = Greatest<T>::both(value, x[lane.at(at)]);
    return together<Greatest<T>>(value, team);
}

// Writes exp(x - greatest x) to `y`, and returns the sum of what it has written to the team's lane. x and y may be the same.
template <typename T>
__device__ inline T exponentials(const T *x, T *y, const Lane &lane, const Team &team) {
    T shift = greatest(x, lane, team), sum = 0;
    for (Index at = own_number(team); at < lane.extent; at += team.members) {
        T value = exponential(x[lane.at(at)] - shift);
        y[lane.at(at)] = value;
        sum += value;
    }
    return together<Sum<T>>(sum, team);
}

// A team computes a lane: each member divides its exponentials by the sum of all.
template <typename T>
__device__ inline void softmax(const T *x, T *y, const Lanes &lanes, const Team &team) {
    for (Index first = first_result(team); first < lanes.count; first += all_results(team)) {
        Lane own = lane(lanes, first + own_team(team));
        T sum = exponentials(x, y, own, team);
        for (Index at = own_number(team); at < own.extent; at += team.members) y[own.at(at)] /= sum;
    }
}

// A team computes a lane: each member subtracts the logarithm of the sum from its elements.
template <typename T>
__device__ inline void log_softmax(const T *x, T *y, const Lanes &lanes, const Team &team) {
    for (Index first = first_result(team); first < lanes.count; first += all_results(team)) {
        Lane own = lane(lanes, first + own_team(team));
        T shift = greatest(x, own, team), sum = 0;
        for (Index at = own_number(team); at < own.extent; at += team.members) {
            T value = x[own.at(at)] - shift;
            y[own.at(at)] = value;
            sum += exponential(value);
        }
        T less = logarithm(together<Sum<T>>(sum, team));
        for (Index at = own_number(team); at < own.extent; at += team.members) y[own.at(at)] -= less;
    }
}

#define SOFTMAX(dtype, T, op)                                                                                                              \
    extern "C" __global__ void TEAMS op##_##dtype(unsigned *fault, unsigned step, const T *x, T *y, Index count, Index stride,             \
                                                  unsigned extent, Team team) {                                                            \
        GUARD;                                                                                                                             \
        op(x, y, Lanes{count, stride, extent}, team);                                                                                      \
    }
FOR_FLOATS(SOFTMAX, softmax)
FOR_FLOATS(SOFTMAX, log_softmax)

// Class labels: i64 if `wide` is 1, and i32 if it is 0.
struct Labels {
    const void *of;
    unsigned wide;

    __device__ long long operator[](Index row) const { return wide ? ((const long long *)of)[row] : ((const int *)of)[row]; }
};

// A team computes the loss of a row of logits. Returns true if the label is not a class.
template <typename T>
__device__ inline bool loss_of_row(const T *x, const Labels &labels, T *loss, const Lanes &lanes, Index row, const Team &team) {
    Lane own = lane(lanes, row);
    T shift = greatest(x, own, team), sum = 0;
    for (Index at = own_number(team); at < own.extent; at += team.members) sum += exponential(x[own.at(at)] - shift);
    sum = together<Sum<T>>(sum, team);
    if (row >= lanes.count || own_number(team) > 0) return false;
    long long label = labels[row];
    if (label < 0 || label >= lanes.extent) return true;
    loss[row] = logarithm(sum) - (x[own.at(label)] - shift);
    return false;
}

// A team computes the gradient of a row of logits. Returns true if the label is not a class.
template <typename T>
__device__ inline bool gradient_of_row(const T *x, const Labels &labels, const T *dloss, T *dx, const Lanes &lanes, Index row,
                                       const Team &team) {
    Lane own = lane(lanes, row);
    T sum = exponentials(x, dx, own, team);
    if (row >= lanes.count) return false;
    long long label = labels[row];
    T scale = dloss[row];
    for (Index at = own_number(team); at < own.extent; at += team.members) {
        T share = dx[own.at(at)] / sum;
        dx[own.at(at)] = (at == label ? share - 1 : share) * scale;
    }
    return label < 0 || label >= lanes.extent;
}

#define CROSS_ENTROPY(dtype, T)                                                                                                            \
    extern "C" __global__ void TEAMS sparse_softmax_cross_entropy_##dtype(unsigned *fault, unsigned step, const T *x, const void *labels,  \
                                                                          T *loss, Index rows, unsigned classes, Team team,                \
                                                                          unsigned wide) {                                                 \
        GUARD;                                                                                                                             \
        for (Index first = first_result(team); first < rows; first += all_results(team))                                                   \
            if (loss_of_row(x, Labels{labels, wide}, loss, Lanes{rows, 1, classes}, first + own_team(team), team)) refuse(fault, step);    \
    }                                                                                                                                      \
    extern "C" __global__ void TEAMS sparse_softmax_cross_entropy_grad_##dtype(unsigned *fault, unsigned step, const T *x,                 \
                                                                               const void *labels, const T *dloss, T *dx, Index rows,      \
                                                                               unsigned classes, Team team, unsigned wide) {               \
        GUARD;                                                                                                                             \
        for (Index first = first_result(team); first < rows; first += all_results(team))                                                   \
            if (gradient_of_row(x, Labels{labels, wide}, dloss, dx, Lanes{rows, 1, classes}, first + own_team(team), team))                \
                refuse(fault, step);                                                                                                       \
    }
FOR_FLOATS(CROSS_ENTROPY)
