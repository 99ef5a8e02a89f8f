/* What the test programs need of Windows. A part of check.h. */
#ifndef CHECK_WINDOWS_H
#define CHECK_WINDOWS_H

/* Closes a socket with the system's call, without notifying the library. */
#pragma push_macro("closesocket")
#undef closesocket
static inline void close_unseen(SOCKET s)
{
    CHECK_IS(closesocket(s), 0);
}
#pragma pop_macro("closesocket")

/* The calls on ports are this library's, or the system's own, which may have no notifications. */
#ifdef CP_NOTIFICATIONS
#include <completion_port.h>
#define HAS_NOTIFICATIONS 1
#else
#define HAS_NOTIFICATIONS 0
#endif

#include <fcntl.h>
#include <io.h>
#include <process.h>
#include <psapi.h>
#include <time.h>
#include <ws2tcpip.h>
#include <unistd.h>

/* As on other systems. */
typedef ADDRESS_FAMILY sa_family_t;
#define pipe(ends) _pipe((ends), 4096, _O_BINARY)

/* The names of former memory models, which programs use for the ends of a connection. */
#undef near
#undef far

/* Conditions under the programs' names: the part of POLLIN that WSAPoll accepts, readable data. */
#undef POLLIN
#undef POLLOUT
#define POLLIN POLLRDNORM
#define POLLOUT POLLWRNORM
#define POLLRDHUP POLLHUP

/* Names of the system that older headers of MinGW have not. */
#ifndef CREATE_WAITABLE_TIMER_HIGH_RESOLUTION
#define CREATE_WAITABLE_TIMER_HIGH_RESOLUTION 2
#endif
#ifndef SIO_UDP_CONNRESET
#define SIO_UDP_CONNRESET _WSAIOW(IOC_VENDOR, 12)
#endif

/* The system sets the codes after failures of socket calls. */
#define HAS_SOCKET_CALLS 0

/* An undrained edge is reported again after some milliseconds if it is persistent: the driver has
 * no edges. */
#define HAS_EDGES 0

/* A wait may return some of the system's events, and the next one the rest. */
#define TAKES_ALL 0

/* A thread has to announce that it is about to sleep. */
#define SEES_SLEEP 0

/* Each change checks what its number names. */
#define HAS_CHECKED_MODE 0

/* A socket is refused if one of its number was removed and closed unseen, until the last packet of that is taken. */
#define KNOWS_WHAT_WAS_REMOVED 0

/* A socket is taken for the one that had its number, as long as a duplicate keeps that alive. */
#define KNOWS_WHAT_IS_KEPT_ALIVE 0

/* Whether it is Wine: what that does in another way than Windows is named where a claim is left out for it. */
static inline int is_wine(void)
{
    return GetProcAddress(GetModuleHandleA("ntdll.dll"), "wine_get_version") != NULL;
}

/* Skips a claim under Wine, and prints how the system differs there. */
#define NOT_ON_WINE(cause) \
    if (is_wine()) { \
        printf("SKIPPED %s under Wine: %s\n", __func__, cause); \
        return; \
    }

/* The same for the single statement that follows. */
#define UNLESS_WINE(cause) if (!is_left_out_under_wine(__func__, cause))

static inline int is_left_out_under_wine(const char *claim, const char *cause)
{
    if (is_wine()) {
        printf("SKIPPED a part of %s under Wine: %s\n", claim, cause);
    }
    return is_wine();
}

static unsigned __stdcall check_stuck(void *seconds)
{
    Sleep((DWORD)(uintptr_t)seconds * 1000);
    fprintf(stderr, "the program is stuck\n");
    _exit(1);
}

/* Ends the program after that many seconds. */
static inline void end_if_stuck(unsigned seconds)
{
    CHECK(_beginthreadex(NULL, 0, check_stuck, (void *)(uintptr_t)seconds, 0, NULL) != 0);
}

/* A socket that the library does not know. */
static inline SOCKET unseen_socket(void)
{
    SOCKET s = socket(AF_INET, SOCK_DGRAM, IPPROTO_UDP);
    u_long on = 1;
    CHECK(s != INVALID_SOCKET);
    CHECK_IS(ioctlsocket(s, FIONBIO, &on), 0);
    return s;
}

/* Another socket with the same number. The library is not notified of either call. */
static inline SOCKET another(SOCKET s)
{
    SOCKET others[64], made;
    int count = 0;
    close_unseen(s);
    while ((made = unseen_socket()) != s) {
        CHECK(count < 64);
        others[count++] = made;
    }
    while (count > 0) {
        close_unseen(others[--count]);
    }
    return made;
}

/* Waits until the system reports this of the socket, without the port. */
static inline void until(SOCKET s, int condition)
{
    WSAPOLLFD asked;
    asked.fd = s;
    do {
        asked.events = (SHORT)(condition & (POLLRDNORM | POLLWRNORM));
        asked.revents = 0;
        CHECK(WSAPoll(&asked, 1, SOON) >= 0);
        Sleep(1);
    } while ((asked.revents & condition) != condition);
}

/* Whether a program that is started gets the socket. */
static inline int is_inherited(SOCKET s)
{
    DWORD flags;
    CHECK(GetHandleInformation((HANDLE)s, &flags));
    return (flags & HANDLE_FLAG_INHERIT) != 0;
}

/* Whether calls on the socket, which must have nothing to read, return immediately. No call reports
 * this. */
static inline int is_nonblocking(SOCKET s)
{
    DWORD milliseconds = 1;
    char byte;
    CHECK_IS(setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, (const char *)&milliseconds, sizeof milliseconds), 0);
    CHECK_IS(recv(s, &byte, 1, 0), SOCKET_ERROR);
    CHECK(WSAGetLastError() == WSAETIMEDOUT || WSAGetLastError() == WSAEWOULDBLOCK);
    return WSAGetLastError() == WSAEWOULDBLOCK;
}

/* Another number of the same socket. */
static inline SOCKET duplicate(SOCKET s)
{
    WSAPROTOCOL_INFOW told;
    SOCKET twin;
    CHECK_IS(WSADuplicateSocketW(s, GetCurrentProcessId(), &told), 0);
    twin = WSASocketW(told.iAddressFamily, told.iSocketType, told.iProtocol, &told, 0, WSA_FLAG_OVERLAPPED);
    CHECK(twin != INVALID_SOCKET);
    return twin;
}


/* Open handles that are not sockets. */
static inline void open_file_and_pipe(uintptr_t *file, uintptr_t ends[2])
{
    char name[MAX_PATH];
    HANDLE opened, pipes[2];
    CHECK(GetModuleFileNameA(NULL, name, MAX_PATH) > 0);
    opened = CreateFileA(name, GENERIC_READ, FILE_SHARE_READ, NULL, OPEN_EXISTING, 0, NULL);
    CHECK(opened != INVALID_HANDLE_VALUE);
    CHECK_IS(CreatePipe(&pipes[0], &pipes[1], NULL, 0), TRUE);
    *file = (uintptr_t)opened;
    ends[0] = (uintptr_t)pipes[0];
    ends[1] = (uintptr_t)pipes[1];
}

static inline void close_file_and_pipe(uintptr_t file, const uintptr_t ends[2])
{
    CHECK_IS(CloseHandle((HANDLE)ends[0]), TRUE);
    CHECK_IS(CloseHandle((HANDLE)ends[1]), TRUE);
    CHECK_IS(CloseHandle((HANDLE)file), TRUE);
}

/* A stream that is not connected, and a datagram socket that is bound. */
static inline void sockets_of_another_family(SOCKET *stream, SOCKET *datagrams)
{
    struct sockaddr_in6 address;
    memset(&address, 0, sizeof address);
    address.sin6_family = AF_INET6;
    address.sin6_addr.s6_addr[15] = 1;
    *stream = socket(AF_INET6, SOCK_STREAM, IPPROTO_TCP);
    *datagrams = socket(AF_INET6, SOCK_DGRAM, IPPROTO_UDP);
    CHECK_IS(bind(*datagrams, (struct sockaddr *)&address, sizeof address), 0);
}

/* The most memory that the program has had so far, in KiB. */
static inline long peak_memory(void)
{
    PROCESS_MEMORY_COUNTERS counters;
    CHECK(GetProcessMemoryInfo(GetCurrentProcess(), &counters, sizeof counters));
    return (long)(counters.PeakWorkingSetSize / 1024);
}

/* Waits until other threads of this process have most likely reached their waits. */
static inline void until_the_others_sleep(void)
{
    Sleep(200);
}

#endif
