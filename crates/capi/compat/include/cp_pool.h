/*
 * cp_pool.h: functions called by threads of the library, either when operations end or at the program's request:
 * BindIoCompletionCallback, CreateThreadpoolIo, QueueUserWorkItem, CreateThreadpoolWork. Included by <windows.h>.
 *
 * If all threads are blocked and there is more to call, the pool grows, up to 500 threads.
 *
 * What differs: there is one pool, so an environment has to be NULL, and the instance is NULL in each call.
 */
#ifndef CP_POOL_H
#define CP_POOL_H

#include <cp_ports.h>

typedef struct _TP_IO TP_IO, *PTP_IO;
typedef struct _TP_CALLBACK_INSTANCE TP_CALLBACK_INSTANCE, *PTP_CALLBACK_INSTANCE;
typedef struct _TP_CALLBACK_ENVIRON TP_CALLBACK_ENVIRON, *PTP_CALLBACK_ENVIRON;
typedef struct _TP_WORK TP_WORK, *PTP_WORK;
typedef VOID(CALLBACK *PTP_WORK_CALLBACK)(PTP_CALLBACK_INSTANCE Instance, PVOID Context, PTP_WORK Work);
typedef VOID(CALLBACK *PTP_SIMPLE_CALLBACK)(PTP_CALLBACK_INSTANCE Instance, PVOID Context);
typedef VOID(CALLBACK *PTP_WIN32_IO_CALLBACK)(PTP_CALLBACK_INSTANCE Instance, PVOID Context,
                                              PVOID Overlapped, ULONG IoResult,
                                              ULONG_PTR NumberOfBytesTransferred, PTP_IO Io);

#define WT_EXECUTEDEFAULT 0x00
#define WT_EXECUTEINIOTHREAD 0x01
#define WT_EXECUTEINWAITTHREAD 0x04
#define WT_EXECUTEONLYONCE 0x08
#define WT_EXECUTELONGFUNCTION 0x10
#define WT_EXECUTEINPERSISTENTTHREAD 0x80
#define WT_TRANSFER_IMPERSONATION 0x100
#define WT_SET_MAX_THREADPOOL_THREADS(Flags, Limit) ((Flags) |= (Limit) << 16)

typedef DWORD(WINAPI *LPTHREAD_START_ROUTINE)(LPVOID lpThreadParameter);
typedef LPTHREAD_START_ROUTINE PTHREAD_START_ROUTINE;

/* The flags that choose a thread have no effect. WT_SET_MAX_THREADPOOL_THREADS sets the maximum number of threads in
 * the pool from then on. */
CP_INLINE BOOL WINAPI QueueUserWorkItem(LPTHREAD_START_ROUTINE Function, PVOID Context, ULONG Flags) {
    return cp_queue_work(Function, Context, Flags);
}

CP_INLINE BOOL WINAPI BindIoCompletionCallback(HANDLE FileHandle, LPOVERLAPPED_COMPLETION_ROUTINE Function,
                                               ULONG Flags) {
    return cp_bind_routine(FileHandle, (void (*)(uint32_t, uint32_t, void *))(FARPROC)Function, Flags);
}

/* Whether the environment is the default one. */
CP_INLINE int cp_is_usual(PTP_CALLBACK_ENVIRON environment) {
    if (environment)
        cp_set_last_error(ERROR_NOT_SUPPORTED);
    return !environment;
}

CP_INLINE PTP_WORK WINAPI CreateThreadpoolWork(PTP_WORK_CALLBACK pfnwk, PVOID pv, PTP_CALLBACK_ENVIRON pcbe) {
    if (!cp_is_usual(pcbe))
        return NULL;
    return (PTP_WORK)cp_new_pool_work((void (*)(void *, void *, void *))(FARPROC)pfnwk, pv);
}

/* One call per submission. */
CP_INLINE VOID WINAPI SubmitThreadpoolWork(PTP_WORK pwk) {
    cp_submit_pool_work(pwk);
}

CP_INLINE VOID WINAPI WaitForThreadpoolWorkCallbacks(PTP_WORK pwk, BOOL fCancelPendingCallbacks) {
    cp_wait_for_pool_work(pwk, fCancelPendingCallbacks);
}

CP_INLINE VOID WINAPI CloseThreadpoolWork(PTP_WORK pwk) {
    cp_close_pool_work(pwk);
}

CP_INLINE BOOL WINAPI TrySubmitThreadpoolCallback(PTP_SIMPLE_CALLBACK pfns, PVOID pv, PTP_CALLBACK_ENVIRON pcbe) {
    return cp_is_usual(pcbe) && cp_submit_pool_call((void (*)(void *, void *))(FARPROC)pfns, pv);
}

CP_INLINE PTP_IO WINAPI CreateThreadpoolIo(HANDLE fl, PTP_WIN32_IO_CALLBACK pfnio, PVOID pv,
                                           PTP_CALLBACK_ENVIRON pcbe) {
    if (!cp_is_usual(pcbe))
        return NULL;
    return (PTP_IO)cp_new_pool_io(
        fl, (void (*)(void *, void *, void *, uint32_t, uintptr_t, void *))(FARPROC)pfnio, pv);
}

/* Before each operation. */
CP_INLINE VOID WINAPI StartThreadpoolIo(PTP_IO pio) {
    cp_start_pool_io(pio);
}

/* After an operation that was not started, or one that no packet reports. */
CP_INLINE VOID WINAPI CancelThreadpoolIo(PTP_IO pio) {
    cp_cancel_pool_io(pio);
}

CP_INLINE VOID WINAPI CloseThreadpoolIo(PTP_IO pio) {
    cp_close_pool_io(pio);
}

/* Waits for the callbacks of finished operations, but not for operations in flight. Pending
 * callbacks are not cancelled: each operation is reported. Waits one second for an operation that
 * was announced but neither started nor taken back. */
CP_INLINE VOID WINAPI WaitForThreadpoolIoCallbacks(PTP_IO pio, BOOL fCancelPendingCallbacks) {
    (void)fCancelPendingCallbacks;
    cp_wait_for_pool_io(pio);
}

#endif
