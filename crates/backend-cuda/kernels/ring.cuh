// A ring of stages in shared memory that the bulk copy engine fills (sm_90 and later).
//
// A stage has two barriers: `full` completes when all announced bytes have come, `empty` when every reader has arrived.
// The n-th use of a stage waits for parity n % 2 of `full`, and for parity (n - 1) % 2 of `empty` before it is filled.
#pragma once
#include "mma.cuh"

__device__ __forceinline__ void barrier_init(u32 barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// After all inits and before the block's barrier: the copy engine sees them.
__device__ __forceinline__ void barrier_init_done() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_expect(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void barrier_arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void barrier_wait(u32 barrier, u32 parity) {
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra over;\n"
                 "bra again;\n"
                 "over:\n"
                 "}" ::"r"(barrier), "r"(parity) : "memory");
}

// For `count` readers at once.
__device__ __forceinline__ void barrier_arrive_for(u32 barrier, u32 count) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

// Addresses and bytes are multiples of 16.
__device__ __forceinline__ void copy_bulk(u32 to, const void* from, u32 bytes, u32 barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier) : "memory");
}

// A box of a two-dimensional tensor map, its first element at (column, row).
__device__ __forceinline__ void copy_box(u32 to, const void* map, u32 column, u32 row, u32 barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
                 "l"(map), "r"(column), "r"(row), "r"(barrier) : "memory");
}

// A barrier of some of a block's threads, the warps from the first on.
__device__ __forceinline__ void barrier_of(u32 threads) {
    asm volatile("bar.sync 1, %0;" ::"r"(threads) : "memory");
}

// The place in a ring and how often it went round.
struct Place {
    u32 stage, round;
    __device__ __forceinline__ void next(u32 stages) {
        if (++stage == stages) stage = 0, round++;
    }
};
