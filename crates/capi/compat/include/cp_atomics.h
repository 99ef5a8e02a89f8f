/* cp_atomics.h: Interlocked… and MemoryBarrier. Included by <windows.h>. */
#ifndef CP_ATOMICS_H
#define CP_ATOMICS_H

#include <cp_base.h>

/*
 * The functions on a number of `Type`. `order` is the memory order, `order_if_not` that of a failed comparison. The
 * name of the order comes last, but before the 64 of a 64-bit function (`late`) or after it (`early`).
 */
#define CP_INTERLOCKED(Type, early, late, order, order_if_not)                                            \
    CP_INLINE Type WINAPI InterlockedIncrement##late(volatile Type *Addend) {                             \
        return __atomic_add_fetch(Addend, 1, order);                                                      \
    }                                                                                                     \
    CP_INLINE Type WINAPI InterlockedDecrement##late(volatile Type *Addend) {                             \
        return __atomic_sub_fetch(Addend, 1, order);                                                      \
    }                                                                                                     \
    CP_INLINE Type WINAPI InterlockedExchangeAdd##late(volatile Type *Addend, Type Value) {               \
        return __atomic_fetch_add(Addend, Value, order);                                                  \
    }                                                                                                     \
    CP_INLINE Type WINAPI InterlockedAdd##late(volatile Type *Addend, Type Value) {                       \
        return __atomic_add_fetch(Addend, Value, order);                                                  \
    }                                                                                                     \
    CP_INLINE Type WINAPI InterlockedExchange##late(volatile Type *Target, Type Value) {                  \
        return __atomic_exchange_n(Target, Value, order);                                                 \
    }                                                                                                     \
    CP_INLINE Type WINAPI InterlockedAnd##early(volatile Type *Destination, Type Value) {                 \
        return __atomic_fetch_and(Destination, Value, order);                                             \
    }                                                                                                     \
    CP_INLINE Type WINAPI InterlockedOr##early(volatile Type *Destination, Type Value) {                  \
        return __atomic_fetch_or(Destination, Value, order);                                              \
    }                                                                                                     \
    CP_INLINE Type WINAPI InterlockedXor##early(volatile Type *Destination, Type Value) {                 \
        return __atomic_fetch_xor(Destination, Value, order);                                             \
    }                                                                                                     \
    CP_INLINE Type WINAPI InterlockedCompareExchange##late(volatile Type *Destination, Type ExChange,     \
                                                           Type Comperand) {                              \
        __atomic_compare_exchange_n(Destination, &Comperand, ExChange, 0, order, order_if_not);           \
        return Comperand;                                                                                 \
    }
CP_INTERLOCKED(LONG, , , __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)
CP_INTERLOCKED(LONG, Acquire, Acquire, __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE)
CP_INTERLOCKED(LONG, Release, Release, __ATOMIC_RELEASE, __ATOMIC_RELAXED)
CP_INTERLOCKED(LONG, NoFence, NoFence, __ATOMIC_RELAXED, __ATOMIC_RELAXED)
CP_INTERLOCKED(LONG64, 64, 64, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)
CP_INTERLOCKED(LONG64, 64Acquire, Acquire64, __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE)
CP_INTERLOCKED(LONG64, 64Release, Release64, __ATOMIC_RELEASE, __ATOMIC_RELAXED)
CP_INTERLOCKED(LONG64, 64NoFence, NoFence64, __ATOMIC_RELAXED, __ATOMIC_RELAXED)
#ifdef __cplusplus
/* On Windows LONG is long, so C++ programs pass a long. Here that is another type, of eight bytes. The overloads for
 * unsigned numbers exist on Windows as well. */
extern "C++" {
#define CP_INTERLOCKED_OVERLOADS(Type)                                                                    \
    CP_INTERLOCKED(Type, , , __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)                                          \
    CP_INTERLOCKED(Type, Acquire, Acquire, __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE)                            \
    CP_INTERLOCKED(Type, Release, Release, __ATOMIC_RELEASE, __ATOMIC_RELAXED)                            \
    CP_INTERLOCKED(Type, NoFence, NoFence, __ATOMIC_RELAXED, __ATOMIC_RELAXED)
CP_INTERLOCKED_OVERLOADS(long)
CP_INTERLOCKED_OVERLOADS(unsigned long)
CP_INTERLOCKED_OVERLOADS(ULONG)
#undef CP_INTERLOCKED_OVERLOADS
}
#endif
#undef CP_INTERLOCKED

CP_INLINE char WINAPI InterlockedExchange8(volatile char *Target, char Value) {
    return __atomic_exchange_n(Target, Value, __ATOMIC_SEQ_CST);
}

CP_INLINE SHORT WINAPI InterlockedExchange16(volatile SHORT *Target, SHORT Value) {
    return __atomic_exchange_n(Target, Value, __ATOMIC_SEQ_CST);
}

/* The same for pointers. */
#define CP_INTERLOCKED_POINTER(suffix, order, order_if_not)                                               \
    CP_INLINE PVOID WINAPI InterlockedExchangePointer##suffix(PVOID volatile *Target, PVOID Value) {      \
        return __atomic_exchange_n(Target, Value, order);                                                 \
    }                                                                                                     \
    CP_INLINE PVOID WINAPI InterlockedCompareExchangePointer##suffix(PVOID volatile *Destination,         \
                                                                     PVOID Exchange, PVOID Comperand) {   \
        __atomic_compare_exchange_n(Destination, &Comperand, Exchange, 0, order, order_if_not);           \
        return Comperand;                                                                                 \
    }
CP_INTERLOCKED_POINTER(, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)
CP_INTERLOCKED_POINTER(Acquire, __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE)
CP_INTERLOCKED_POINTER(Release, __ATOMIC_RELEASE, __ATOMIC_RELAXED)
CP_INTERLOCKED_POINTER(NoFence, __ATOMIC_RELAXED, __ATOMIC_RELAXED)
#undef CP_INTERLOCKED_POINTER

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
