/* Looking up functions at run time, as programs do that also run on systems without socket
 * notifications. */
#include <winsock2.h>
#include <mswsock.h>
#include <windows.h>
#include <ws2tcpip.h>

#include "check.h"

typedef DWORD(WSAAPI *PROCESS_SOCKET_NOTIFICATIONS)(HANDLE, UINT32, SOCK_NOTIFY_REGISTRATION *, UINT32, ULONG,
                                                    OVERLAPPED_ENTRY *, UINT32 *);
typedef BOOL(WINAPI *POST_QUEUED_COMPLETION_STATUS)(HANDLE, DWORD, ULONG_PTR, LPOVERLAPPED);

static void the_function_is_found_and_works(HMODULE module)
{
    PROCESS_SOCKET_NOTIFICATIONS process;
    HANDLE port = new_port(0);
    SOCKET s = udp_socket();
    SOCK_NOTIFY_REGISTRATION registration = change(s, 3, SOCK_NOTIFY_OP_ENABLE, FILTER_OUT, LEVEL_ONCE);
    OVERLAPPED_ENTRY entry;
    UINT32 received;
    CHECK(module != NULL);
    process = (PROCESS_SOCKET_NOTIFICATIONS)GetProcAddress(module, "ProcessSocketNotifications");
    CHECK(process != NULL);
    CHECK_IS(process(port, 1, &registration, SOON, 1, &entry, &received), ERROR_SUCCESS);
    CHECK_IS(received, 1);
    CHECK_IS(registration.registrationResult, ERROR_SUCCESS);
    CHECK_IS(entry.lpCompletionKey, 3);
    CHECK_IS(SocketNotificationRetrieveEvents(&entry), SOCK_NOTIFY_EVENT_OUT);
    CHECK_IS(closesocket(s), 0);
    CHECK_IS(CloseHandle(port), TRUE);

    SetLastError(0);
    CHECK(GetProcAddress(module, "processsocketnotifications") == NULL); /* names have a case */
    CHECK_IS(GetLastError(), ERROR_PROC_NOT_FOUND);
    SetLastError(0);
    CHECK(GetProcAddress(module, "ThereIsNoSuchFunction") == NULL);
    CHECK_IS(GetLastError(), ERROR_PROC_NOT_FOUND);
    SetLastError(0);
    CHECK(GetProcAddress(module, "") == NULL);
    CHECK_IS(GetLastError(), ERROR_PROC_NOT_FOUND);
}

typedef SOCKET(WSAAPI *SOCKET_FUNCTION)(int, int, int);
typedef SOCKET(WSAAPI *ACCEPT_FUNCTION)(SOCKET, struct sockaddr *, int *);
typedef int(WSAAPI *RECV_FUNCTION)(SOCKET, char *, int, int);
typedef int(WSAAPI *SEND_FUNCTION)(SOCKET, const char *, int, int);
typedef int(WSAAPI *RECVFROM_FUNCTION)(SOCKET, char *, int, int, struct sockaddr *, int *);
typedef int(WSAAPI *SENDTO_FUNCTION)(SOCKET, const char *, int, int, const struct sockaddr *, int);
typedef int(WSAAPI *IOCTLSOCKET_FUNCTION)(SOCKET, long, u_long *);
typedef int(WSAAPI *CLOSESOCKET_FUNCTION)(SOCKET);
typedef int(WSAAPI *GETHOSTNAME_FUNCTION)(char *, int);
typedef u_long(WSAAPI *HTONL_FUNCTION)(u_long);
typedef INT(WSAAPI *INETPTON_FUNCTION)(INT, PCSTR, PVOID);

/* A looked-up socket function has the reference's types. Its result and lengths differ in size from those of the
 * system's function. */
static void a_socket_function_has_the_types_of_the_reference(HMODULE winsock)
{
    SOCKET_FUNCTION a_socket = (SOCKET_FUNCTION)GetProcAddress(winsock, "socket");
    ACCEPT_FUNCTION an_accept = (ACCEPT_FUNCTION)GetProcAddress(winsock, "accept");
    RECV_FUNCTION a_recv = (RECV_FUNCTION)GetProcAddress(winsock, "recv");
    SEND_FUNCTION a_send = (SEND_FUNCTION)GetProcAddress(winsock, "send");
    RECVFROM_FUNCTION a_recvfrom = (RECVFROM_FUNCTION)GetProcAddress(winsock, "recvfrom");
    SENDTO_FUNCTION a_sendto = (SENDTO_FUNCTION)GetProcAddress(winsock, "sendto");
    IOCTLSOCKET_FUNCTION an_ioctl = (IOCTLSOCKET_FUNCTION)GetProcAddress(winsock, "ioctlsocket");
    CLOSESOCKET_FUNCTION a_close = (CLOSESOCKET_FUNCTION)GetProcAddress(winsock, "closesocket");
    GETHOSTNAME_FUNCTION a_name = (GETHOSTNAME_FUNCTION)GetProcAddress(winsock, "gethostname");
    HTONL_FUNCTION in_order = (HTONL_FUNCTION)GetProcAddress(winsock, "htonl");
    INETPTON_FUNCTION to_number = (INETPTON_FUNCTION)GetProcAddress(winsock, "InetPtonA");
    volatile int length = 1;
    struct sockaddr_in address, from;
    struct in_addr number;
    SOCKET s, near, far;
    char text[300] = "";
    u_long on = 1;
    int size = (int)sizeof from;
    CHECK(a_socket && an_accept && a_recv && a_send && a_recvfrom && a_sendto && an_ioctl && a_close && a_name);
    CHECK(in_order && to_number);

    WSASetLastError(0);
    CHECK(a_socket(9999, SOCK_STREAM, 0) == INVALID_SOCKET);
    CHECK_IS(WSAGetLastError(), WSAEAFNOSUPPORT);
    CHECK(an_accept(INVALID_SOCKET, NULL, NULL) == INVALID_SOCKET);
    CHECK_IS(WSAGetLastError(), WSAENOTSOCK);

    s = a_socket(AF_INET, SOCK_DGRAM, IPPROTO_UDP);
    CHECK(s != INVALID_SOCKET);
    address = bind_to_loopback(s);
    CHECK_IS(a_sendto(s, "xyz", length, 0, (struct sockaddr *)&address, (int)sizeof address), 1);
    CHECK_IS(a_recvfrom(s, text, (int)sizeof text, 0, (struct sockaddr *)&from, &size), 1);
    CHECK_IS(size, sizeof from);
    CHECK(text[0] == 'x' && from.sin_port == address.sin_port);
    CHECK_IS(an_ioctl(s, FIONBIO, &on), 0);
    CHECK_SOCKET_ERROR(a_recv(s, text, length, 0), WSAEWOULDBLOCK);
    CHECK_SOCKET_ERROR(a_recv(s, text, -length, 0), WSAEFAULT);
    CHECK_SOCKET_ERROR(a_send(s, text, -length, 0), WSAEFAULT);
    CHECK_SOCKET_ERROR(a_sendto(s, text, -length, 0, (struct sockaddr *)&address, (int)sizeof address), WSAEFAULT);
    CHECK_SOCKET_ERROR(a_recvfrom(s, text, -length, 0, NULL, NULL), WSAEFAULT);
    CHECK_IS(a_close(s), 0);
    CHECK_SOCKET_ERROR(a_close(s), WSAENOTSOCK);

    tcp_pair(&near, &far);
    CHECK_IS(a_send(near, "ab", 2 * length, 0), 2);
    receive_all(far, text, 2);
    CHECK(text[0] == 'a' && text[1] == 'b');
    CHECK_IS(closesocket(near), 0);
    CHECK_IS(closesocket(far), 0);

    CHECK_IS(a_name(text, (int)sizeof text), 0);
    CHECK(strlen(text) > 0);
    CHECK_SOCKET_ERROR(a_name(NULL, (int)sizeof text), WSAEFAULT);
    CHECK_SOCKET_ERROR(a_name(text, (int)strlen(text)), WSAEFAULT);
    CHECK(in_order(1) == htonl(1));
    CHECK_IS(to_number(AF_INET, "127.0.0.1", &number), 1);
    CHECK(number.s_addr == htonl(INADDR_LOOPBACK));
}

typedef HANDLE(WINAPI *CREATE_EVENT)(LPSECURITY_ATTRIBUTES, BOOL, BOOL, LPCSTR);
typedef BOOL(WINAPI *SET_EVENT)(HANDLE);
typedef DWORD(WINAPI *WAIT)(HANDLE, DWORD);
typedef FARPROC(WINAPI *GET_PROC_ADDRESS)(HMODULE, LPCSTR);

/* Functions that are inline in the headers have an address, too. */
static void an_inline_function_is_found_and_works(HMODULE kernel)
{
    CREATE_EVENT create = (CREATE_EVENT)GetProcAddress(kernel, "CreateEventA");
    SET_EVENT set = (SET_EVENT)GetProcAddress(kernel, "SetEvent");
    WAIT wait = (WAIT)GetProcAddress(kernel, "WaitForSingleObject");
    GET_PROC_ADDRESS find = (GET_PROC_ADDRESS)GetProcAddress(kernel, "GetProcAddress");
    HANDLE event;
    CHECK(create && set && wait && find);
    CHECK(find(kernel, "SetEvent") != NULL);
    event = create(NULL, FALSE, FALSE, NULL);
    CHECK(event != NULL);
    CHECK_IS(wait(event, 0), WAIT_TIMEOUT);
    CHECK_IS(SetEvent(event), TRUE);
    CHECK_IS(wait(event, SOON), WAIT_OBJECT_0);
    CHECK_IS(set(event), TRUE);
    CHECK_IS(WaitForSingleObject(event, SOON), WAIT_OBJECT_0);
    CHECK_IS(CloseHandle(event), TRUE);
    CHECK_FALSE(set(event), ERROR_INVALID_HANDLE);
}

#define CHECK_NOT_FOUND(module, name, code) \
    (SetLastError(0), CHECK(GetProcAddress((module), (name)) == NULL), CHECK_IS(GetLastError(), (code)))

/* A function is found only in its own module. Those that take text end with A or W, and those that the library lacks
 * are found nowhere. */
static void what_is_not_there_is_not_found(HMODULE winsock, HMODULE kernel)
{
    HMODULE ntdll = GetModuleHandleA("NTDLL.DLL");
    CHECK(ntdll != NULL && ntdll == GetModuleHandleW(L"ntdll"));
    CHECK(ntdll != winsock && ntdll != kernel && winsock != kernel);
    CHECK_NOT_FOUND(winsock, "CreateEventA", ERROR_PROC_NOT_FOUND);
    CHECK_NOT_FOUND(kernel, "recv", ERROR_PROC_NOT_FOUND);
    CHECK_NOT_FOUND(ntdll, "SetEvent", ERROR_PROC_NOT_FOUND);
    CHECK_NOT_FOUND(kernel, "CreateEvent", ERROR_PROC_NOT_FOUND);
    CHECK_NOT_FOUND(kernel, "createeventa", ERROR_PROC_NOT_FOUND);
    CHECK_NOT_FOUND(winsock, "Recv", ERROR_PROC_NOT_FOUND);
    CHECK_NOT_FOUND(GetModuleHandle(TEXT("mswsock.dll")), "ConnectEx", ERROR_PROC_NOT_FOUND); /* only by its GUID */
    CHECK(GetProcAddress(GetModuleHandle(TEXT("mswsock.dll")), "TransmitFile") != NULL);
#ifndef _WIN32
    CHECK_NOT_FOUND(winsock, (LPCSTR)(ULONG_PTR)16, ERROR_PROC_NOT_FOUND); /* an ordinal */
    CHECK_NOT_FOUND(winsock, (LPCSTR)(ULONG_PTR)0xFFFF, ERROR_PROC_NOT_FOUND);
    CHECK_NOT_FOUND(winsock, NULL, ERROR_PROC_NOT_FOUND);
    CHECK_NOT_FOUND(NULL, "SetEvent", ERROR_INVALID_HANDLE);
    CHECK_NOT_FOUND((HMODULE)(void *)&ntdll, "SetEvent", ERROR_INVALID_HANDLE);
    CHECK_NOT_FOUND(ntdll, "NtDeviceIoControlFile", ERROR_PROC_NOT_FOUND); /* absent */
    CHECK_NOT_FOUND(winsock, "WSAEventSelect", ERROR_PROC_NOT_FOUND);
#endif
}

int main(void)
{
    static const char *const of_winsock[] = {"ProcessSocketNotifications", "WSAGetLastError", "WSASetLastError",
                                             "WSACleanup"};
    static const char *const of_the_kernel[] = {"CreateIoCompletionPort",     "GetQueuedCompletionStatus",
                                                "GetQueuedCompletionStatusEx", "PostQueuedCompletionStatus",
                                                "CloseHandle",                "GetLastError",
                                                "SetLastError",               "QueueUserWorkItem",
                                                "BindIoCompletionCallback"};
    HMODULE module, again, kernel;
    POST_QUEUED_COMPLETION_STATUS post;
    HANDLE port;
    size_t i;
    start();

    module = LoadLibrary("ws2_32.dll");
    the_function_is_found_and_works(module);
    again = LoadLibraryA("WS2_32.DLL");
    the_function_is_found_and_works(again);
    CHECK(module == again);
    the_function_is_found_and_works(GetModuleHandle("ws2_32.dll"));
    the_function_is_found_and_works(LoadLibraryW(L"ws2_32.dll"));
    the_function_is_found_and_works(LoadLibrary(TEXT("ws2_32")));
    for (i = 0; i < sizeof of_winsock / sizeof *of_winsock; i++) {
        if (GetProcAddress(module, of_winsock[i]) == NULL) {
            fprintf(stderr, "%s is not found\n", of_winsock[i]);
            return 1;
        }
    }
    kernel = GetModuleHandle("kernel32.dll");
    CHECK(kernel != NULL);
    for (i = 0; i < sizeof of_the_kernel / sizeof *of_the_kernel; i++) {
        if (GetProcAddress(kernel, of_the_kernel[i]) == NULL) {
            fprintf(stderr, "%s is not found\n", of_the_kernel[i]);
            return 1;
        }
    }
    post = (POST_QUEUED_COMPLETION_STATUS)GetProcAddress(kernel, "PostQueuedCompletionStatus");
    port = new_port(0);
    CHECK_IS(post(port, 1, 2, NULL), TRUE);
    CHECK_NEXT(port, 2, 1);
    CHECK_IS(CloseHandle(port), TRUE);

    a_socket_function_has_the_types_of_the_reference(module);
    an_inline_function_is_found_and_works(kernel);
    what_is_not_there_is_not_found(module, kernel);

    SetLastError(0);
    CHECK(LoadLibrary("there is no such library.dll") == NULL);
    CHECK_IS(GetLastError(), ERROR_MOD_NOT_FOUND);
    SetLastError(0);
    CHECK(GetModuleHandle("there is no such library.dll") == NULL);
    CHECK_IS(GetLastError(), ERROR_MOD_NOT_FOUND);
    CHECK_IS(FreeLibrary(again), TRUE);
    CHECK_IS(FreeLibrary(module), TRUE);
    return finish();
}
