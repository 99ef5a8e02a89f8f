/* What the test programs of overlapped operations share. To be included after "check.h". */
#ifndef OVERLAPPED_H
#define OVERLAPPED_H

#include <stddef.h>

/* The statuses of the reference that the tests look for. */
#define SUCCEEDED_WELL 0x0u
#define BUFFER_OVERFLOW 0x80000005u
#define CANCELLED 0xC0000120u
#define CONNECTION_RESET 0xC000020Du
#define CONNECTION_REFUSED 0xC0000236u

static inline WSABUF buffer_of(void *bytes, size_t size)
{
    WSABUF buffer;
    buffer.len = (ULONG)size;
    buffer.buf = (CHAR *)bytes;
    return buffer;
}

/* An OVERLAPPED with anything in it but an event. */
static inline OVERLAPPED fresh(HANDLE event)
{
    OVERLAPPED overlapped;
    memset(&overlapped, 0xA5, sizeof overlapped);
    overlapped.hEvent = event;
    return overlapped;
}

/* Associates the operations of a socket with the port. */
static inline void associate(SOCKET s, HANDLE port, ULONG_PTR key)
{
    CHECK(CreateIoCompletionPort((HANDLE)s, port, key, 0) == port);
}

/* Two ends of one connection, of which the operations of the first complete on the port. */
static inline void associated_pair(HANDLE port, ULONG_PTR key, SOCKET *one, SOCKET *other)
{
    tcp_pair(one, other);
    associate(*one, port, key);
}

static inline void close_both(SOCKET one, SOCKET other)
{
    CHECK_IS(closesocket(one), 0);
    CHECK_IS(closesocket(other), 0);
}

static inline int receive_into(SOCKET s, void *bytes, size_t size, DWORD *received, LPOVERLAPPED overlapped)
{
    WSABUF buffer = buffer_of(bytes, size);
    DWORD flags = 0;
    return WSARecv(s, &buffer, 1, received, &flags, overlapped, NULL);
}

static inline int send_from(SOCKET s, const void *bytes, size_t size, DWORD *sent, LPOVERLAPPED overlapped)
{
    WSABUF buffer = buffer_of((void *)(uintptr_t)bytes, size);
    return WSASend(s, &buffer, 1, sent, 0, overlapped, NULL);
}

/* The next socket that gets a number which is free. */
static inline SOCKET next_of_number(SOCKET number)
{
    SOCKET lower[64], next;
    int count = 0;
    while ((next = udp_socket()) != number) {
        CHECK(next < number && count < 64);
        lower[count++] = next;
    }
    while (count > 0)
        closesocket(lower[--count]);
    return next;
}

/* The status in the word of an operation, of which Windows leaves one half as it was. */
static inline ULONG_PTR status_of(ULONG_PTR internal)
{
    return HAS_SOCKET_CALLS ? internal : (DWORD)internal;
}

/* The code of operations in flight when their socket was closed. */
static inline DWORD closed_code(void)
{
    UNLESS_WINE("what is in flight on a socket that is closed ends with another code")
        return ERROR_OPERATION_ABORTED;
#ifdef _WIN32
    return 676; /* ERROR_HANDLES_CLOSED */
#endif
}

/* The call must have started an operation that is in progress. */
#define CHECK_PENDING(call) CHECK_SOCKET_ERROR(call, WSA_IO_PENDING)

/* Makes a call that returns a BOOL and must fail with WSA_IO_PENDING, even if its operation has already ended. Under
 * Wine it may return TRUE. */
#define CHECK_BEGINS(call) \
    (SetLastError(0), CHECK((call) ? !HAS_SOCKET_CALLS : WSAGetLastError() == WSA_IO_PENDING))

/* The next packet must be that of an operation that has ended well. */
static inline void ended_at(const char *file, int line, HANDLE port, ULONG_PTR key, LPOVERLAPPED overlapped,
                            DWORD bytes)
{
    DWORD count = UNTOUCHED;
    ULONG_PTR word = UNTOUCHED;
    LPOVERLAPPED which = NULL;
    check_same(file, line, "the wait", GetQueuedCompletionStatus(port, &count, &word, &which, SOON), "a success",
               TRUE);
    check_same(file, line, "the key", (long long)word, "the association's", (long long)key);
    check_same(file, line, "the OVERLAPPED", (long long)(uintptr_t)which, "that of the operation",
               (long long)(uintptr_t)overlapped);
    check_same(file, line, "the count", count, "what was transferred", bytes);
}
#define CHECK_ENDED(port, key, overlapped, bytes) ended_at(__FILE__, __LINE__, (port), (key), (overlapped), (bytes))

/* A byte that the other end sends must end the receive that is in flight. */
static inline void ended_by_a_byte_at(const char *file, int line, SOCKET far, HANDLE port, ULONG_PTR key,
                                      LPOVERLAPPED overlapped)
{
    send_all(far, "x", 1);
    ended_at(file, line, port, key, overlapped, 1);
}
#define CHECK_ENDED_BY_A_BYTE(far, port, key, overlapped) \
    ended_by_a_byte_at(__FILE__, __LINE__, (far), (port), (key), (overlapped))

/* The next packet must be that of an operation that has failed with this code. */
static inline void failed_at(const char *file, int line, HANDLE port, ULONG_PTR key, LPOVERLAPPED overlapped,
                             DWORD bytes, DWORD code)
{
    DWORD count = UNTOUCHED;
    ULONG_PTR word = UNTOUCHED;
    LPOVERLAPPED which = NULL;
    SetLastError(0);
    check_same(file, line, "the wait", GetQueuedCompletionStatus(port, &count, &word, &which, SOON), "a failure",
               FALSE);
    check_same(file, line, "the code", GetLastError(), "why it has failed", code);
    check_same(file, line, "the key", (long long)word, "the association's", (long long)key);
    check_same(file, line, "the OVERLAPPED", (long long)(uintptr_t)which, "that of the operation",
               (long long)(uintptr_t)overlapped);
    check_same(file, line, "the count", count, "what was transferred", bytes);
}
#define CHECK_FAILED(port, key, overlapped, bytes, code) \
    failed_at(__FILE__, __LINE__, (port), (key), (overlapped), (bytes), (code))

#if HAS_SOCKET_CALLS
/* Checks that the wait for the callbacks of a pool io returns immediately: a wait for a missing one
 * takes a second. A busy machine may be that slow anyway, so one quick attempt is enough. */
static inline void waits_for_none(PTP_IO io, BOOL cancels)
{
    ULONGLONG first = GetTickCount64(), began;
    do {
        began = GetTickCount64();
        CHECK(began - first < SOON);
        WaitForThreadpoolIoCallbacks(io, cancels);
    } while (GetTickCount64() - began >= 900);
}
#endif

/* Waits until an operation has ended, and takes nothing: as a program does that spins. */
static inline void until_ended(LPOVERLAPPED overlapped)
{
    ULONGLONG began = GetTickCount64();
    while (!HasOverlappedIoCompleted(overlapped)) {
        CHECK(GetTickCount64() - began < SOON);
        SwitchToThread();
    }
}

#endif
