/*
 * cp_lists.h: lists that several threads push to and pop from, last in, first out. Included by <windows.h>.
 *
 * What differs: a list has a lock, which a thread holds for a few instructions. So the memory of a popped entry may be
 * freed at any time, as on the reference, and no change counter is needed to detect that a list has changed.
 */
#ifndef CP_LISTS_H
#define CP_LISTS_H

#include <cp_ports.h>

#define MEMORY_ALLOCATION_ALIGNMENT 16

/* Entries and the list have the alignment of HeapAlloc and of _aligned_malloc(…, MEMORY_ALLOCATION_ALIGNMENT). */
typedef struct __attribute__((__aligned__(16))) _SLIST_ENTRY {
    struct _SLIST_ENTRY *Next;
} SLIST_ENTRY, *PSLIST_ENTRY;

/* `lock`: 0 if free, 1 if a thread holds it, 2 if others may be waiting. */
typedef struct __attribute__((__aligned__(16))) _SLIST_HEADER {
    PSLIST_ENTRY first;
    uint32_t lock;
    uint32_t depth;
} SLIST_HEADER, *PSLIST_HEADER;

CP_INLINE VOID WINAPI InitializeSListHead(PSLIST_HEADER ListHead) {
    memset(ListHead, 0, sizeof *ListHead);
}

CP_INLINE void cp_list_lock(PSLIST_HEADER list) {
    uint32_t state = 0;
    if (__atomic_compare_exchange_n(&list->lock, &state, 1U, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        return;
    while (__atomic_exchange_n(&list->lock, 2U, __ATOMIC_ACQUIRE) != 0)
        cp_wait_word(&list->lock, 2, INFINITE);
}

CP_INLINE void cp_list_unlock(PSLIST_HEADER list) {
    if (__atomic_exchange_n(&list->lock, 0U, __ATOMIC_RELEASE) == 2)
        cp_wake_word(&list->lock, 1);
}

/* Pushes entries that are linked to each other. Returns the previous first entry, or NULL. */
CP_INLINE PSLIST_ENTRY WINAPI InterlockedPushListSListEx(PSLIST_HEADER ListHead, PSLIST_ENTRY List,
                                                         PSLIST_ENTRY ListEnd, ULONG Count) {
    PSLIST_ENTRY former;
    cp_list_lock(ListHead);
    former = ListHead->first;
    ListEnd->Next = former;
    ListHead->first = List;
    ListHead->depth += Count;
    cp_list_unlock(ListHead);
    return former;
}

CP_INLINE PSLIST_ENTRY WINAPI InterlockedPushEntrySList(PSLIST_HEADER ListHead, PSLIST_ENTRY ListEntry) {
    return InterlockedPushListSListEx(ListHead, ListEntry, ListEntry, 1);
}

/* Returns the first entry, or NULL. */
CP_INLINE PSLIST_ENTRY WINAPI InterlockedPopEntrySList(PSLIST_HEADER ListHead) {
    PSLIST_ENTRY first;
    cp_list_lock(ListHead);
    first = ListHead->first;
    if (first) {
        ListHead->first = first->Next;
        ListHead->depth--;
    }
    cp_list_unlock(ListHead);
    return first;
}

/* Returns all entries, linked to each other, or NULL. */
CP_INLINE PSLIST_ENTRY WINAPI InterlockedFlushSList(PSLIST_HEADER ListHead) {
    PSLIST_ENTRY first;
    cp_list_lock(ListHead);
    first = ListHead->first;
    ListHead->first = NULL;
    ListHead->depth = 0;
    cp_list_unlock(ListHead);
    return first;
}

CP_INLINE USHORT WINAPI QueryDepthSList(PSLIST_HEADER ListHead) {
    USHORT depth;
    cp_list_lock(ListHead);
    depth = (USHORT)ListHead->depth;
    cp_list_unlock(ListHead);
    return depth;
}

#endif
