/* cp_atomics.h: Interlocked… and MemoryBarrier. Included by <windows.h>. */
#ifndef CP_ATOMICS_H
#define CP_ATOMICS_H

#include <cp_base.h>

/* The functions on a number of one type; the names of those on 64 bits end in 64. */
#define CP_INTERLOCKED(Type, bits)                                                             \
    CP_INLINE Type WINAPI InterlockedIncrement##bits(volatile Type *Addend) {                  \
        return __atomic_add_fetch(Addend, 1, __ATOMIC_SEQ_CST);                                \
    }                                                                                          \
    CP_INLINE Type WINAPI InterlockedDecrement##bits(volatile Type *Addend) {                  \
        return __atomic_sub_fetch(Addend, 1, __ATOMIC_SEQ_CST);                                \
    }                                                                                          \
    CP_INLINE Type WINAPI InterlockedExchangeAdd##bits(volatile Type *Addend, Type Value) {    \
        return __atomic_fetch_add(Addend, Value, __ATOMIC_SEQ_CST);                            \
    }                                                                                          \
    CP_INLINE Type WINAPI InterlockedAdd##bits(volatile Type *Addend, Type Value) {            \
        return __atomic_add_fetch(Addend, Value, __ATOMIC_SEQ_CST);                            \
    }                                                                                          \
    CP_INLINE Type WINAPI InterlockedExchange##bits(volatile Type *Target, Type Value) {       \
        return __atomic_exchange_n(Target, Value, __ATOMIC_SEQ_CST);                           \
    }                                                                                          \
    CP_INLINE Type WINAPI InterlockedAnd##bits(volatile Type *Destination, Type Value) {       \
        return __atomic_fetch_and(Destination, Value, __ATOMIC_SEQ_CST);                       \
    }                                                                                          \
    CP_INLINE Type WINAPI InterlockedOr##bits(volatile Type *Destination, Type Value) {        \
        return __atomic_fetch_or(Destination, Value, __ATOMIC_SEQ_CST);                        \
    }                                                                                          \
    CP_INLINE Type WINAPI InterlockedXor##bits(volatile Type *Destination, Type Value) {       \
        return __atomic_fetch_xor(Destination, Value, __ATOMIC_SEQ_CST);                       \
    }                                                                                          \
    CP_INLINE Type WINAPI InterlockedCompareExchange##bits(volatile Type *Destination,         \
                                                           Type ExChange, Type Comperand) {    \
        __atomic_compare_exchange_n(Destination, &Comperand, ExChange, 0, __ATOMIC_SEQ_CST,    \
                                    __ATOMIC_SEQ_CST);                                         \
        return Comperand;                                                                      \
    }
CP_INTERLOCKED(LONG, )
CP_INTERLOCKED(LONG64, 64)
#undef CP_INTERLOCKED

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

/* In parentheses: some programs define a macro of that name. */
CP_INLINE VOID WINAPI(YieldProcessor)(void) {
#if defined __x86_64__
    __asm__ __volatile__("pause");
#elif defined __aarch64__
    __asm__ __volatile__("yield");
#endif
}

#endif
