/* Functions that are looked up by name while the program runs, as programs do that also run where there
 * are no socket notifications. */
#include <winsock2.h>
#include <mswsock.h>
#include <windows.h>

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
