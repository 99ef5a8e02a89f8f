/*
 * cp_waits.h: objects that can be waited for, and the waits. Included by <windows.h>.
 *
 * Threads, events, semaphores and timers are handles, which CloseHandle closes. A wait may be for those, for ports,
 * which are signalled while packets are queued, and for files, which are signalled by the end of an operation; for
 * anything else it fails with ERROR_INVALID_HANDLE.
 *
 * What differs: a wait for a port or a file looks every millisecond. There are no APCs, so an
 * alertable wait is a plain one.
 */
#ifndef CP_WAITS_H
#define CP_WAITS_H

#include <sched.h>
#include <stdlib.h>

#include <cp_clocks.h>
#include <cp_ports.h>

#define WAIT_OBJECT_0 0
#define WAIT_ABANDONED 0x80
#define WAIT_ABANDONED_0 0x80
#define WAIT_IO_COMPLETION 0xC0
#define WAIT_FAILED 0xFFFFFFFFU
#define MAXIMUM_WAIT_OBJECTS 64

/* ---- Objects --------------------------------------------------------------------------------- */

/* What an object is. */
enum { CP_IS_THREAD = 1, CP_IS_EVENT, CP_IS_SEMAPHORE, CP_IS_TIMER, CP_IS_REGISTERED_WAIT };

/* The first part of each object. */
typedef struct cp_waitable {
    uint32_t shares;
    uint32_t is;
    uint32_t signalled; /* whether it is; of a semaphore, how many waits it ends */
    uint32_t resets;    /* a wait that it ends takes the signal away */
} cp_waitable;

/* Of the handles of all these objects. */
#define CP_KIND_WAITABLE 0x57414954U

CP_INLINE void cp_waitable_retain(void *object) {
    __atomic_fetch_add(&((cp_waitable *)object)->shares, 1U, __ATOMIC_RELAXED);
}

CP_INLINE void cp_waitable_release(void *object) {
    if (__atomic_fetch_sub(&((cp_waitable *)object)->shares, 1U, __ATOMIC_ACQ_REL) == 1)
        free(object);
}

/* An object of so many bytes and with so many shares; NULL and the last error if there is no memory. */
CP_INLINE void *cp_waitable_new(size_t size, uint32_t is, uint32_t shares) {
    cp_waitable *object = (cp_waitable *)calloc(1, size);
    if (!object) {
        SetLastError(ERROR_NOT_ENOUGH_MEMORY);
        return NULL;
    }
    object->is = is;
    object->shares = shares;
    return object;
}

/* A handle, which takes over one share. */
CP_INLINE HANDLE cp_waitable_open(void *object) {
    return cp_open_object(object, CP_KIND_WAITABLE, cp_waitable_retain, cp_waitable_release);
}

/* The object of a handle, with a share of it; NULL and the last error if it is no such object. */
CP_INLINE void *cp_waitable_find(HANDLE handle, uint32_t is) {
    cp_waitable *object = (cp_waitable *)cp_find_object(handle, CP_KIND_WAITABLE);
    if (!object || object->is == is)
        return object;
    cp_waitable_release(object);
    SetLastError(ERROR_INVALID_HANDLE);
    return NULL;
}

CP_INLINE void cp_waitable_signal(cp_waitable *object) {
    __atomic_store_n(&object->signalled, 1U, __ATOMIC_SEQ_CST);
    cp_signal();
}

/* ---- Timers, as far as waits need them --------------------------------------------------------- */

/* No thread runs for it: each wait looks whether its time has come, and sleeps no longer than until then. */
typedef struct cp_timer {
    cp_waitable base;
    uint32_t busy; /* a thread changes or looks at what follows */
    uint32_t is_set;
    uint32_t is_absolute; /* `due` is a time of the day */
    uint64_t due;         /* nanoseconds of the clock */
    uint64_t period;      /* 0: it is signalled once */
} cp_timer;

/* An absolute time may come nearer or farther while a thread sleeps. So long may it sleep. */
#define CP_LONGEST_SLEEP_FOR_AN_ABSOLUTE_TIME 500U

CP_INLINE void cp_timer_lock(cp_timer *timer) {
    while (__atomic_exchange_n(&timer->busy, 1U, __ATOMIC_ACQUIRE) != 0)
        sched_yield();
}

CP_INLINE void cp_timer_unlock(cp_timer *timer) {
    __atomic_store_n(&timer->busy, 0U, __ATOMIC_RELEASE);
}

/* Nanoseconds since 1970. */
CP_INLINE uint64_t cp_time_of_day(void) {
    struct timespec now = cp_now();
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

/* Signals it if its time has come. Returns after how many milliseconds the next one comes, rounded up. */
CP_INLINE DWORD cp_timer_look(cp_timer *timer) {
    DWORD left = INFINITE;
    cp_timer_lock(timer);
    if (timer->is_set) {
        uint64_t now = timer->is_absolute ? cp_time_of_day() : cp_clock();
        if (now >= timer->due) {
            __atomic_store_n(&timer->base.signalled, 1U, __ATOMIC_SEQ_CST);
            if (timer->period == 0) {
                timer->is_set = 0;
            } else {
                uint64_t late = (now - timer->due) % timer->period;
                /* The period is one of time that passes, whatever becomes of the time of the day. */
                timer->due = cp_clock() - late + timer->period;
                now = cp_clock();
                timer->is_absolute = 0;
            }
        }
        if (timer->is_set) {
            uint64_t milliseconds = timer->due > now ? (timer->due - now + 999999U) / 1000000U : 0;
            left = milliseconds < INFINITE ? (DWORD)milliseconds : INFINITE - 1;
            if (timer->is_absolute && left > CP_LONGEST_SLEEP_FOR_AN_ABSOLUTE_TIME)
                left = CP_LONGEST_SLEEP_FOR_AN_ABSOLUTE_TIME;
        }
    }
    cp_timer_unlock(timer);
    return left;
}

/* ---- Waits ----------------------------------------------------------------------------------- */

/* Milliseconds that are left, rounded up, of a wait that began at `began`. */
CP_INLINE DWORD cp_time_left(uint64_t began, DWORD milliseconds) {
    uint64_t gone = cp_clock() - began;
    uint64_t all = (uint64_t)milliseconds * 1000000U;
    if (milliseconds == INFINITE)
        return INFINITE;
    return gone >= all ? 0 : (DWORD)((all - gone + 999999U) / 1000000U);
}

CP_INLINE int cp_waitable_is_signalled(cp_waitable *object) {
    if (object->is == CP_IS_TIMER)
        cp_timer_look((cp_timer *)(void *)object);
    return __atomic_load_n(&object->signalled, __ATOMIC_SEQ_CST) != 0;
}

/* Whether it is signalled; ends a signal that one wait takes. */
CP_INLINE int cp_waitable_take(cp_waitable *object) {
    uint32_t signals;
    if (!cp_waitable_is_signalled(object))
        return 0;
    signals = __atomic_load_n(&object->signalled, __ATOMIC_SEQ_CST);
    while (object->resets && signals > 0)
        if (__atomic_compare_exchange_n(&object->signalled, &signals, signals - 1, 0, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST))
            return 1;
    return signals > 0;
}

/* Undoes that. */
CP_INLINE void cp_waitable_give_back(cp_waitable *object) {
    if (!object->resets)
        return;
    if (object->is == CP_IS_SEMAPHORE)
        __atomic_fetch_add(&object->signalled, 1U, __ATOMIC_SEQ_CST);
    else
        __atomic_store_n(&object->signalled, 1U, __ATOMIC_SEQ_CST);
    cp_signal();
}

/* What a wait is for: an object, or a port or file if that is NULL. */
typedef struct cp_awaited {
    cp_waitable *object;
    HANDLE port;
} cp_awaited;

/* What a handle is to a wait, with a share of the object; fails with the last error. */
CP_INLINE int cp_awaited_find(cp_awaited *it, HANDLE handle) {
    DWORD last = GetLastError();
    it->port = handle;
    it->object = (cp_waitable *)cp_find_object(handle, CP_KIND_WAITABLE);
    if (it->object && it->object->is == CP_IS_REGISTERED_WAIT) {
        cp_waitable_release(it->object);
        SetLastError(ERROR_INVALID_HANDLE);
        return 0;
    }
    if (!it->object && cp_peek(handle) == CP_ERROR_INVALID_HANDLE) {
        SetLastError(ERROR_INVALID_HANDLE);
        return 0;
    }
    SetLastError(last);
    return 1;
}

CP_INLINE void cp_awaited_release(cp_awaited *it) {
    if (it->object)
        cp_waitable_release(it->object);
}

/* Whether it is signalled; a port that was closed meanwhile becomes NULL. */
CP_INLINE int cp_awaited_is_signalled(cp_awaited *it) {
    uint32_t code;
    if (it->object)
        return cp_waitable_is_signalled(it->object);
    code = cp_peek(it->port);
    if (code == CP_ERROR_INVALID_HANDLE)
        it->port = NULL;
    return code == CP_SUCCESS;
}

/* The same, and ends a signal that one wait takes. The packets of a port stay. */
CP_INLINE int cp_awaited_take(cp_awaited *it) {
    return it->object ? cp_waitable_take(it->object) : cp_awaited_is_signalled(it);
}

/* After how many milliseconds it may be signalled though no thread signals it. */
CP_INLINE DWORD cp_awaited_look_again(cp_awaited *it) {
    if (!it->object)
        return 1; /* only a look tells whether there are packets */
    return it->object->is == CP_IS_TIMER ? cp_timer_look((cp_timer *)(void *)it->object) : INFINITE;
}

CP_INLINE DWORD cp_wait_for(cp_awaited *awaited, DWORD count, BOOL all, DWORD milliseconds) {
    const uint32_t *signals = cp_signals();
    uint64_t began = cp_clock();
    for (;;) {
        uint32_t before = __atomic_load_n(signals, __ATOMIC_SEQ_CST);
        DWORD left = cp_time_left(began, milliseconds);
        DWORD sleep = left;
        DWORD index = 0;
        if (all) {
            while (index < count && cp_awaited_is_signalled(&awaited[index]))
                index++;
            /* Between the look and the taking another thread may take one: then those that were
             * taken are given back. */
            if (index == count) {
                DWORD taken = 0;
                while (taken < count && cp_awaited_take(&awaited[taken]))
                    taken++;
                if (taken == count)
                    return WAIT_OBJECT_0;
                while (taken > 0)
                    if (awaited[--taken].object)
                        cp_waitable_give_back(awaited[taken].object);
                sched_yield();
            }
        } else {
            for (; index < count; index++)
                if (cp_awaited_take(&awaited[index]))
                    return WAIT_OBJECT_0 + index;
        }
        for (index = 0; index < count; index++) {
            DWORD again = cp_awaited_look_again(&awaited[index]);
            if (!awaited[index].object && !awaited[index].port) {
                SetLastError(ERROR_INVALID_HANDLE);
                return WAIT_FAILED;
            }
            if (sleep > again)
                sleep = again;
        }
        if (left == 0)
            return WAIT_TIMEOUT;
        if (sleep > 0)
            cp_wait_word(signals, before, sleep);
    }
}

/* A signal that one wait takes cannot be there for each copy of a handle. */
CP_INLINE int cp_has_copies(const HANDLE *handles, DWORD count) {
    DWORD one, other;
    for (one = 1; one < count; one++)
        for (other = 0; other < one; other++)
            if (handles[one] == handles[other])
                return 1;
    return 0;
}

CP_INLINE DWORD WINAPI WaitForMultipleObjects(DWORD nCount, const HANDLE *lpHandles, BOOL bWaitAll,
                                              DWORD dwMilliseconds) {
    cp_awaited awaited[MAXIMUM_WAIT_OBJECTS];
    DWORD found = 0;
    DWORD result = WAIT_FAILED;
    if (nCount == 0 || nCount > MAXIMUM_WAIT_OBJECTS || !lpHandles || (bWaitAll && cp_has_copies(lpHandles, nCount))) {
        SetLastError(ERROR_INVALID_PARAMETER);
        return WAIT_FAILED;
    }
    while (found < nCount && cp_awaited_find(&awaited[found], lpHandles[found]))
        found++;
    if (found == nCount)
        result = cp_wait_for(awaited, nCount, bWaitAll, dwMilliseconds);
    while (found > 0)
        cp_awaited_release(&awaited[--found]);
    return result;
}

CP_INLINE DWORD WINAPI WaitForSingleObject(HANDLE hHandle, DWORD dwMilliseconds) {
    return WaitForMultipleObjects(1, &hHandle, FALSE, dwMilliseconds);
}

CP_INLINE DWORD WINAPI WaitForSingleObjectEx(HANDLE hHandle, DWORD dwMilliseconds, BOOL bAlertable) {
    (void)bAlertable;
    return WaitForSingleObject(hHandle, dwMilliseconds);
}

CP_INLINE DWORD WINAPI WaitForMultipleObjectsEx(DWORD nCount, const HANDLE *lpHandles, BOOL bWaitAll,
                                                DWORD dwMilliseconds, BOOL bAlertable) {
    (void)bAlertable;
    return WaitForMultipleObjects(nCount, lpHandles, bWaitAll, dwMilliseconds);
}

#endif
