/* cp_atomics.h: Interlocked… and MemoryBarrier. Included by <windows.h>. */
#ifndef CP_ATOMICS_H
#define CP_ATOMICS_H

#include <cp_base.h>

CP_INLINE LONG WINAPI InterlockedIncrement(volatile LONG *Addend) {
    return __atomic_add_fetch(Addend, 1, __ATOMIC_SEQ_CST);
}

CP_INLINE LONG WINAPI InterlockedDecrement(volatile LONG *Addend) {
    return __atomic_sub_fetch(Addend, 1, __ATOMIC_SEQ_CST);
}

CP_INLINE LONG WINAPI InterlockedExchangeAdd(volatile LONG *Addend, LONG Value) {
    return __atomic_fetch_add(Addend, Value, __ATOMIC_SEQ_CST);
}

CP_INLINE LONG WINAPI InterlockedAdd(volatile LONG *Addend, LONG Value) {
    return __atomic_add_fetch(Addend, Value, __ATOMIC_SEQ_CST);
}

CP_INLINE LONG WINAPI InterlockedExchange(volatile LONG *Target, LONG Value) {
    return __atomic_exchange_n(Target, Value, __ATOMIC_SEQ_CST);
}

CP_INLINE LONG WINAPI InterlockedAnd(volatile LONG *Destination, LONG Value) {
    return __atomic_fetch_and(Destination, Value, __ATOMIC_SEQ_CST);
}

CP_INLINE LONG WINAPI InterlockedOr(volatile LONG *Destination, LONG Value) {
    return __atomic_fetch_or(Destination, Value, __ATOMIC_SEQ_CST);
}

CP_INLINE LONG WINAPI InterlockedXor(volatile LONG *Destination, LONG Value) {
    return __atomic_fetch_xor(Destination, Value, __ATOMIC_SEQ_CST);
}

CP_INLINE LONG WINAPI InterlockedCompareExchange(volatile LONG *Destination, LONG ExChange, LONG Comperand) {
    __atomic_compare_exchange_n(Destination, &Comperand, ExChange, 0, __ATOMIC_SEQ_CST,
                                __ATOMIC_SEQ_CST);
    return Comperand;
}

CP_INLINE LONG64 WINAPI InterlockedIncrement64(volatile LONG64 *Addend) {
    return __atomic_add_fetch(Addend, 1, __ATOMIC_SEQ_CST);
}

CP_INLINE LONG64 WINAPI InterlockedDecrement64(volatile LONG64 *Addend) {
    return __atomic_sub_fetch(Addend, 1, __ATOMIC_SEQ_CST);
}

CP_INLINE LONG64 WINAPI InterlockedExchangeAdd64(volatile LONG64 *Addend, LONG64 Value) {
    return __atomic_fetch_add(Addend, Value, __ATOMIC_SEQ_CST);
}

CP_INLINE LONG64 WINAPI InterlockedAdd64(volatile LONG64 *Addend, LONG64 Value) {
    return __atomic_add_fetch(Addend, Value, __ATOMIC_SEQ_CST);
}

CP_INLINE LONG64 WINAPI InterlockedExchange64(volatile LONG64 *Target, LONG64 Value) {
    return __atomic_exchange_n(Target, Value, __ATOMIC_SEQ_CST);
}

CP_INLINE LONG64 WINAPI InterlockedAnd64(volatile LONG64 *Destination, LONG64 Value) {
    return __atomic_fetch_and(Destination, Value, __ATOMIC_SEQ_CST);
}

CP_INLINE LONG64 WINAPI InterlockedOr64(volatile LONG64 *Destination, LONG64 Value) {
    return __atomic_fetch_or(Destination, Value, __ATOMIC_SEQ_CST);
}

CP_INLINE LONG64 WINAPI InterlockedXor64(volatile LONG64 *Destination, LONG64 Value) {
    return __atomic_fetch_xor(Destination, Value, __ATOMIC_SEQ_CST);
}

CP_INLINE LONG64 WINAPI InterlockedCompareExchange64(volatile LONG64 *Destination, LONG64 ExChange, LONG64 Comperand) {
    __atomic_compare_exchange_n(Destination, &Comperand, ExChange, 0, __ATOMIC_SEQ_CST,
                                __ATOMIC_SEQ_CST);
    return Comperand;
}

CP_INLINE char WINAPI InterlockedExchange8(volatile char *Target, char Value) {
    return __atomic_exchange_n(Target, Value, __ATOMIC_SEQ_CST);
}

CP_INLINE SHORT WINAPI InterlockedExchange16(volatile SHORT *Target, SHORT Value) {
    return __atomic_exchange_n(Target, Value, __ATOMIC_SEQ_CST);
}

CP_INLINE PVOID WINAPI InterlockedExchangePointer(PVOID volatile *Target, PVOID Value) {
    return __atomic_exchange_n(Target, Value, __ATOMIC_SEQ_CST);
}

CP_INLINE PVOID WINAPI InterlockedCompareExchangePointer(PVOID volatile *Destination, PVOID Exchange,
                                                         PVOID Comperand) {
    __atomic_compare_exchange_n(Destination, &Comperand, Exchange, 0, __ATOMIC_SEQ_CST,
                                __ATOMIC_SEQ_CST);
    return Comperand;
}

CP_INLINE VOID WINAPI MemoryBarrier(void) {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

CP_INLINE VOID WINAPI YieldProcessor(void) {
#if defined __x86_64__
    __asm__ __volatile__("pause");
#elif defined __aarch64__
    __asm__ __volatile__("yield");
#endif
}

#endif
