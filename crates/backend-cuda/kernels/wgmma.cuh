// wgmma m64nNk16 of a warpgroup: d[64][N] += a[64][16] * b[N][16]^T, N = 64, 128 or 256; b from shared memory, a from there or from
// registers (each warp's 16 rows as the fragment of mma.sync).
//
// Thread t of the warpgroup has of d the rows 16 * (t / 32) + t % 32 / 4 and 8 more, the columns 8 j + t % 4 * 2 and the next:
// d[4 j + i] is row + 8 * (i / 2), column + i % 2. The bits are those of a chain of mma.sync m16n8k16 (measured on sm_90).
#pragma once
#include "ring.cuh"

// Rows in cores of 8 x 16 bytes: the next core in k follows 128 bytes later, the next 8 rows `stripe` bytes later.
__device__ __forceinline__ u64 core_descriptor(u32 address, u32 stripe) {
    return u64(address >> 4 & 0x3fff) | u64(128 >> 4) << 16 | u64(stripe >> 4) << 32;
}

// Rows of 128 bytes as a tensor map of 128-byte swizzle writes them; 8 rows are 1,024 bytes, which the tile is aligned to.
// The next 16 columns are 32 bytes further.
__device__ __forceinline__ u64 swizzled_descriptor(u32 address) {
    return u64(address >> 4 & 0x3fff) | u64(1) << 16 | u64(1024 >> 4) << 32 | u64(1) << 62;
}

// b as [k][n] in cores of 8 k x 8 n: the next core in n follows 128 bytes later, the next 8 k `stripe` bytes later.
__device__ __forceinline__ u64 transposed_descriptor(u32 address, u32 stripe) {
    return u64(address >> 4 & 0x3fff) | u64(stripe >> 4) << 16 | u64(128 >> 4) << 32;
}

__device__ __forceinline__ void wgmma_begin() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int PENDING> __device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

#define DS4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define DS16(i) DS4(i), DS4(i + 4), DS4(i + 8), DS4(i + 12)
#define DS64(i) DS16(i), DS16(i + 16), DS16(i + 32), DS16(i + 48)

#define REGISTERS_64 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
__device__ __forceinline__ void wgmma(bf16*, float (&d)[32], u64 a, u64 b, u32 accumulate) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %34, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" REGISTERS_64
                 "}, %32, %33, p, 1, 1, 0, 0;}" : DS16(0), DS16(16) : "l"(a), "l"(b), "r"(accumulate));
}
__device__ __forceinline__ void wgmma(f16*, float (&d)[32], u64 a, u64 b, u32 accumulate) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %34, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" REGISTERS_64
                 "}, %32, %33, p, 1, 1, 0, 0;}" : DS16(0), DS16(16) : "l"(a), "l"(b), "r"(accumulate));
}

#define REGISTERS_128 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
__device__ __forceinline__ void wgmma(bf16*, float (&d)[64], u64 a, u64 b, u32 accumulate) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %66, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" REGISTERS_128
                 "}, %64, %65, p, 1, 1, 0, 0;}" : DS64(0) : "l"(a), "l"(b), "r"(accumulate));
}
__device__ __forceinline__ void wgmma(f16*, float (&d)[64], u64 a, u64 b, u32 accumulate) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %66, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" REGISTERS_128
                 "}, %64, %65, p, 1, 1, 0, 0;}" : DS64(0) : "l"(a), "l"(b), "r"(accumulate));
}

#define REGISTERS_256 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, " \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
__device__ __forceinline__ void wgmma(bf16*, float (&d)[128], u64 a, u64 b, u32 accumulate) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %130, 0; wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" REGISTERS_256
                 "}, %128, %129, p, 1, 1, 0, 0;}" : DS64(0), DS64(64) : "l"(a), "l"(b), "r"(accumulate));
}
__device__ __forceinline__ void wgmma(f16*, float (&d)[128], u64 a, u64 b, u32 accumulate) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %130, 0; wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {" REGISTERS_256
                 "}, %128, %129, p, 1, 1, 0, 0;}" : DS64(0), DS64(64) : "l"(a), "l"(b), "r"(accumulate));
}
// a from registers; TRANSPOSED: b by `transposed_descriptor`.
template <int TRANSPOSED> __device__ __forceinline__ void wgmma(bf16*, float (&d)[32], const u32 (&a)[4], u64 b, u32 accumulate) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %37, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" REGISTERS_64
                 "}, {%32, %33, %34, %35}, %36, p, 1, 1, %38;}" : DS16(0), DS16(16)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(TRANSPOSED));
}
template <int TRANSPOSED> __device__ __forceinline__ void wgmma(f16*, float (&d)[32], const u32 (&a)[4], u64 b, u32 accumulate) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %37, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" REGISTERS_64
                 "}, {%32, %33, %34, %35}, %36, p, 1, 1, %38;}" : DS16(0), DS16(16)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(TRANSPOSED));
}
template <int TRANSPOSED> __device__ __forceinline__ void wgmma(bf16*, float (&d)[64], const u32 (&a)[4], u64 b, u32 accumulate) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %69, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" REGISTERS_128
                 "}, {%64, %65, %66, %67}, %68, p, 1, 1, %70;}" : DS64(0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(TRANSPOSED));
}
template <int TRANSPOSED> __device__ __forceinline__ void wgmma(f16*, float (&d)[64], const u32 (&a)[4], u64 b, u32 accumulate) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %69, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" REGISTERS_128
                 "}, {%64, %65, %66, %67}, %68, p, 1, 1, %70;}" : DS64(0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(TRANSPOSED));
}
