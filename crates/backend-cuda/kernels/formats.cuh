// Number formats and what every kernel needs, without any header of the toolkit.
//
// `f32`, `bf16` and `f16` are the names that the defines X, Y, W, K and V carry. Arithmetic is in float32; `read` widens
// exactly, `write` rounds to nearest even. A value beyond the range of f16 becomes infinite, so it is found later as
// a score that is not finite.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef float f32;

struct bf16 {
    u16 bits;
};
struct f16 {
    u16 bits;
};

__device__ __forceinline__ float read(f32 x) {
    return x;
}
__device__ __forceinline__ float read(bf16 x) {
    return __uint_as_float(u32(x.bits) << 16);
}
__device__ __forceinline__ float read(f16 x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}

__device__ __forceinline__ void write(f32& y, float x) {
    y = x;
}
__device__ __forceinline__ void write(bf16& y, float x) {
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
}
__device__ __forceinline__ void write(f16& y, float x) {
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
}

// Two neighbours in one register, the first in the lower half.
__device__ __forceinline__ u32 pack(bf16*, float first, float second) {
    u32 y;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(second), "f"(first));
    return y;
}
__device__ __forceinline__ u32 pack(f16*, float first, float second) {
    u32 y;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(second), "f"(first));
    return y;
}
template <class T> __device__ __forceinline__ u32 pack(float first, float second) {
    return pack((T*)0, first, second);
}

template <class A, class B> struct same {
    static const bool value = false;
};
template <class A> struct same<A, A> {
    static const bool value = true;
};

// Dependent launch: nothing that an earlier kernel wrote may be read, and nothing written, before this returns. So no input
// may be `const __restrict__`: the compiler would take it for constant and could read it before. Outputs may be `__restrict__`.
__device__ __forceinline__ void wait_for_earlier_kernels() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The next kernel's blocks may start: they prefetch weights and then wait for the end of this one.
__device__ __forceinline__ void let_next_kernel_start() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// For a kernel with nothing to do before its values are there.
__device__ __forceinline__ void join_chain() {
    let_next_kernel_start();
    wait_for_earlier_kernels();
}

// The place of (row, column) in core order [rows/8][columns/8][8][8]; columns a multiple of 8.
__device__ __forceinline__ u64 core_place(u32 row, u32 column, u32 columns) {
    u64 core = u64(row / 8) * (columns / 8) + column / 8;
    return core * 64 + (row % 8) * 8 + column % 8;
}

// The place of (row, column) in tile order [rows/16][columns/64][2][8][8][8]: tiles of 16 rows x 64 columns, each two halves of 8 rows in
// core order; columns a multiple of 64.
__device__ __forceinline__ u64 tile_place(u32 row, u32 column, u32 columns) {
    u64 tile = u64(row / 16) * (columns / 64) + column / 64;
    return tile * 1024 + core_place(row % 16, column % 64, 64);
}

// `count` up to the next multiple of `unit`.
__host__ __device__ __forceinline__ u32 round_up(u32 count, u32 unit) {
    return (count + unit - 1) / unit * unit;
}
