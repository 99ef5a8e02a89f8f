/* A forked child does not have its parent's operations, and may start its own. */
#include <winsock2.h>
#include <mswsock.h>

#include "check.h"
#include "overlapped.h"

#include <sys/wait.h>

#define KEY 5u

static void be_child(HANDLE port, SOCKET of_parent, LPOVERLAPPED in_flight)
{
    SOCKET near, far;
    char byte = 0;
    OVERLAPPED overlapped = fresh(NULL);
    DWORD count = UNTOUCHED;
    ULONG_PTR key;
    LPOVERLAPPED which;
    HANDLE own = new_port(1);
    CHECK_FALSE(GetQueuedCompletionStatus(port, &count, &key, &which, 0), ERROR_INVALID_HANDLE);
    CHECK_FALSE(CancelIoEx((HANDLE)of_parent, in_flight), ERROR_NOT_FOUND);
    CHECK_FALSE(CancelIoEx((HANDLE)of_parent, NULL), ERROR_NOT_FOUND);
    tcp_pair(&near, &far);
    CHECK_PENDING(receive_into(near, &byte, 1, NULL, &overlapped));
    send_all(far, "x", 1);
    CHECK(GetOverlappedResult((HANDLE)near, &overlapped, &count, TRUE));
    CHECK_IS(byte, 'x');
    associate(near, own, KEY);
    CHECK_PENDING(receive_into(near, &byte, 1, NULL, &overlapped));
    send_all(far, "y", 1);
    CHECK_ENDED(own, KEY, &overlapped, 1);
    CHECK_PENDING(receive_into(near, &byte, 1, NULL, &overlapped));
    CHECK_IS(closesocket(near), 0);
    CHECK_FAILED(own, KEY, &overlapped, 0, ERROR_OPERATION_ABORTED);
    /* Its own copy of the descriptor: the operation is the parent's. */
    CHECK_IS(closesocket(of_parent), 0);
    CHECK_IS(in_flight->Internal, STATUS_PENDING);
    closesocket(far);
    CHECK(CloseHandle(own));
    if (is_slow()) /* Valgrind asks about memory that the other threads have lost here */
        execl("/bin/true", "true", (char *)NULL);
    _exit(0);
}

int main(void)
{
    SOCKET near, far, alone, peer;
    char byte = 0, other = 0;
    OVERLAPPED overlapped = fresh(NULL), without = fresh(NULL);
    DWORD count = UNTOUCHED;
    HANDLE port;
    int status = 0;
    pid_t child;
    start();
    port = new_port(1);
    tcp_pair(&near, &far);
    tcp_pair(&alone, &peer);
    associate(near, port, KEY);
    CHECK_PENDING(receive_into(near, &byte, 1, NULL, &overlapped));
    CHECK_PENDING(receive_into(alone, &other, 1, NULL, &without));
    child = fork_at_rest();
    if (child == 0)
        be_child(port, near, &overlapped);
    CHECK_IS(waitpid(child, &status, 0), child);
    CHECK_IS(status, 0);
    CHECK_IS(overlapped.Internal, STATUS_PENDING);
    send_all(far, "z", 1);
    CHECK_ENDED(port, KEY, &overlapped, 1);
    CHECK_IS(byte, 'z');
    send_all(peer, "w", 1);
    CHECK(GetOverlappedResult((HANDLE)alone, &without, &count, TRUE));
    CHECK_IS(other, 'w');
    closesocket(near);
    closesocket(far);
    closesocket(alone);
    closesocket(peer);
    CHECK(CloseHandle(port));
    return finish();
}
