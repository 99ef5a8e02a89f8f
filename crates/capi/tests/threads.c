/* Threads as <process.h> begins them, ends by ExitThread, memory of each thread, initialisation that is done once. */
#include <winsock2.h>
#include <process.h>
#include <windows.h>

#include "check.h"

static volatile LONG ran;

static unsigned __stdcall counts(void *argument)
{
    InterlockedIncrement(&ran);
    return (unsigned)(ULONG_PTR)argument;
}

static DWORD end_of(uintptr_t thread)
{
    HANDLE handle = (HANDLE)thread;
    DWORD code = UNTOUCHED;
    CHECK_IS(WaitForSingleObject(handle, INFINITE), WAIT_OBJECT_0);
    CHECK_IS(GetExitCodeThread(handle, &code), TRUE);
    CHECK_IS(CloseHandle(handle), TRUE);
    return code;
}

static void threads_of_the_c_library_run(void)
{
    unsigned id = 0;
    uintptr_t thread = _beginthreadex(NULL, 0, counts, (void *)(ULONG_PTR)5, 0, &id);
    CHECK(thread != 0);
    CHECK_IS(GetThreadId((HANDLE)thread), id);
    CHECK(id != GetCurrentThreadId());
    CHECK_IS(end_of(thread), 5);
    CHECK_IS(ran, 1);
    errno = 0;
    CHECK_IS(_beginthreadex(NULL, 0, NULL, NULL, 0, NULL), 0);
    CHECK_IS(errno, EINVAL);
}

static void a_suspended_thread_waits_to_be_resumed(void)
{
    HANDLE event = CreateEvent(NULL, TRUE, FALSE, NULL);
    uintptr_t thread;
    ran = 0;
    thread = _beginthreadex(NULL, 0, counts, NULL, CREATE_SUSPENDED, NULL);
    CHECK_IS(WaitForSingleObject((HANDLE)thread, A_WHILE), WAIT_TIMEOUT);
    CHECK_IS(ran, 0);
    CHECK_IS(ResumeThread((HANDLE)thread), 1);
    CHECK_IS(ResumeThread((HANDLE)thread), 0);
    CHECK_IS(end_of(thread), 0);
    CHECK_IS(ran, 1);
    SetLastError(0);
    CHECK_IS(ResumeThread(event), (DWORD)-1);
    CHECK_IS(GetLastError(), ERROR_INVALID_HANDLE);
    CHECK_IS(CloseHandle(event), TRUE);
}

static void ends_the_thread(DWORD code)
{
    ExitThread(code);
}

static DWORD WINAPI leaves_from_a_call(LPVOID unused)
{
    (void)unused;
    ends_the_thread(77);
    CHECK(0);
    return 0;
}

static unsigned __stdcall leaves_as_the_c_library_has_it(void *unused)
{
    (void)unused;
    _endthreadex(78);
    CHECK(0);
    return 0;
}

static void a_thread_may_end_anywhere(void)
{
    CHECK_IS(end_of((uintptr_t)CreateThread(NULL, 0, leaves_from_a_call, NULL, 0, NULL)), 77);
    CHECK_IS(end_of(_beginthreadex(NULL, 0, leaves_as_the_c_library_has_it, NULL, 0, NULL)), 78);
}

static HANDLE simple_thread_is_over;

static void __cdecl sets_the_event(void *argument)
{
    CHECK_IS((ULONG_PTR)argument, 9);
    CHECK_IS(SetEvent(simple_thread_is_over), TRUE);
    _endthread();
}

static void a_simple_thread_closes_its_handle(void)
{
    uintptr_t thread;
    simple_thread_is_over = CreateEvent(NULL, TRUE, FALSE, NULL);
    thread = _beginthread(sets_the_event, 0, (void *)(ULONG_PTR)9);
    CHECK(thread != (uintptr_t)-1);
    CHECK_IS(WaitForSingleObject(simple_thread_is_over, INFINITE), WAIT_OBJECT_0);
#ifdef _WIN32
    /* The thread may reach its end only now. */
#else
    CHECK_FALSE(CloseHandle((HANDLE)thread), ERROR_INVALID_HANDLE);
#endif
    CHECK_IS(CloseHandle(simple_thread_is_over), TRUE);
    errno = 0;
    CHECK_IS(_beginthread(NULL, 0, NULL), (uintptr_t)-1);
    CHECK_IS(errno, EINVAL);
}

/* ---- memory of each thread ----------------------------------------------------------------------- */

static DWORD place;

static DWORD WINAPI has_a_value_of_its_own(LPVOID unused)
{
    (void)unused;
    SetLastError(123);
    CHECK(TlsGetValue(place) == NULL);
    CHECK_IS(GetLastError(), ERROR_SUCCESS);
    CHECK_IS(TlsSetValue(place, &place), TRUE);
    CHECK(TlsGetValue(place) == &place);
    return 0;
}

static void each_thread_has_its_own_values(void)
{
    int mine;
    place = TlsAlloc();
    CHECK(place != TLS_OUT_OF_INDEXES);
    CHECK_IS(TlsSetValue(place, &mine), TRUE);
    CHECK_IS(end_of((uintptr_t)CreateThread(NULL, 0, has_a_value_of_its_own, NULL, 0, NULL)), 0);
    CHECK(TlsGetValue(place) == &mine);
    CHECK_IS(TlsFree(place), TRUE);
}

/* ---- once ------------------------------------------------------------------------------------------ */

enum { THREADS = 4 };

static INIT_ONCE once = INIT_ONCE_STATIC_INIT;
static volatile LONG made;

static BOOL CALLBACK fails_once(PINIT_ONCE one, PVOID parameter, PVOID *context)
{
    CHECK(one == &once);
    CHECK(parameter == &place);
    Sleep(A_WHILE); /* the other threads come meanwhile */
    *context = &place;
    return InterlockedIncrement(&made) > 1;
}

static DWORD WINAPI wants_it(LPVOID unused)
{
    PVOID context = NULL;
    DWORD failures = 0;
    (void)unused;
    while (!InitOnceExecuteOnce(&once, fails_once, &place, &context)) {
        failures++;
    }
    CHECK(context == &place);
    return failures;
}

static void it_is_made_once(void)
{
    uintptr_t threads[THREADS];
    DWORD failures = 0;
    int i;
    for (i = 0; i < THREADS; i++) {
        threads[i] = (uintptr_t)CreateThread(NULL, 0, wants_it, NULL, 0, NULL);
    }
    for (i = 0; i < THREADS; i++) {
        failures += end_of(threads[i]);
    }
    CHECK_IS(failures, 1);
    CHECK_IS(made, 2);
}

/* ---- the same in two calls ------------------------------------------------------------------------- */

static INIT_ONCE in_steps = INIT_ONCE_STATIC_INIT;
static volatile LONG tried;

static DWORD WINAPI wants_it_in_steps(LPVOID unused)
{
    PVOID context = NULL;
    BOOL pending = FALSE;
    DWORD failures = 0;
    (void)unused;
    for (;;) {
        CHECK_IS(InitOnceBeginInitialize(&in_steps, 0, &pending, &context), TRUE);
        if (!pending) {
            break;
        }
        Sleep(A_WHILE); /* the other threads arrive meanwhile */
        if (InterlockedIncrement(&tried) == 1) {
            failures++;
            CHECK_IS(InitOnceComplete(&in_steps, INIT_ONCE_INIT_FAILED, NULL), TRUE);
        } else {
            CHECK_IS(InitOnceComplete(&in_steps, 0, &in_steps), TRUE);
        }
    }
    CHECK(context == &in_steps);
    return failures;
}

static void one_of_the_threads_initialises_it(void)
{
    uintptr_t threads[THREADS];
    PVOID context = NULL;
    BOOL pending = FALSE;
    DWORD failures = 0;
    int i;
    CHECK_FALSE(InitOnceBeginInitialize(&in_steps, INIT_ONCE_CHECK_ONLY, &pending, &context), ERROR_GEN_FAILURE);
    CHECK_FALSE(InitOnceComplete(&in_steps, 0, NULL), ERROR_GEN_FAILURE);
    for (i = 0; i < THREADS; i++) {
        threads[i] = (uintptr_t)CreateThread(NULL, 0, wants_it_in_steps, NULL, 0, NULL);
    }
    for (i = 0; i < THREADS; i++) {
        failures += end_of(threads[i]);
    }
    CHECK_IS(failures, 1);
    CHECK_IS(tried, 2);
    CHECK_IS(InitOnceBeginInitialize(&in_steps, INIT_ONCE_CHECK_ONLY, &pending, &context), TRUE);
    CHECK(!pending && context == &in_steps);
    context = NULL;
    CHECK_IS(InitOnceExecuteOnce(&in_steps, fails_once, NULL, &context), TRUE); /* is not called */
    CHECK(context == &in_steps);
    CHECK_FALSE(InitOnceComplete(&in_steps, 0, NULL), ERROR_GEN_FAILURE);
}

static void several_threads_may_try_and_the_first_wins(void)
{
    INIT_ONCE steps;
    PVOID context = NULL;
    BOOL pending = FALSE;
    InitOnceInitialize(&steps);
    CHECK_IS(InitOnceBeginInitialize(&steps, INIT_ONCE_ASYNC, &pending, &context), TRUE);
    CHECK(pending);
    pending = FALSE;
    CHECK_IS(InitOnceBeginInitialize(&steps, INIT_ONCE_ASYNC, &pending, &context), TRUE);
    CHECK(pending);
    CHECK_FALSE(InitOnceBeginInitialize(&steps, 0, &pending, &context), ERROR_INVALID_PARAMETER);
    CHECK_FALSE(InitOnceComplete(&steps, 0, &steps), ERROR_INVALID_PARAMETER);
    CHECK_FALSE(InitOnceComplete(&steps, INIT_ONCE_ASYNC | INIT_ONCE_INIT_FAILED, NULL), ERROR_INVALID_PARAMETER);
    CHECK_FALSE(InitOnceComplete(&steps, INIT_ONCE_ASYNC, (char *)&steps + 1), ERROR_INVALID_PARAMETER);
    CHECK_IS(InitOnceComplete(&steps, INIT_ONCE_ASYNC, &steps), TRUE);
    CHECK_FALSE(InitOnceComplete(&steps, INIT_ONCE_ASYNC, &place), ERROR_GEN_FAILURE);
    CHECK_IS(InitOnceBeginInitialize(&steps, INIT_ONCE_ASYNC, &pending, &context), TRUE);
    CHECK(!pending && context == &steps);
    InitOnceInitialize(&steps);
    CHECK_IS(InitOnceBeginInitialize(&steps, 0, &pending, NULL), TRUE);
    CHECK_FALSE(InitOnceBeginInitialize(&steps, INIT_ONCE_ASYNC, &pending, NULL), ERROR_INVALID_PARAMETER);
    CHECK_FALSE(InitOnceBeginInitialize(&steps, INIT_ONCE_CHECK_ONLY | INIT_ONCE_ASYNC, &pending, NULL),
                ERROR_INVALID_PARAMETER);
    CHECK_FALSE(InitOnceComplete(&steps, INIT_ONCE_INIT_FAILED, &steps), ERROR_INVALID_PARAMETER);
    CHECK_IS(InitOnceComplete(&steps, INIT_ONCE_INIT_FAILED, NULL), TRUE);
    CHECK_FALSE(InitOnceComplete(&steps, 0, NULL), ERROR_GEN_FAILURE);
}

int main(void)
{
    start();
    threads_of_the_c_library_run();
    a_suspended_thread_waits_to_be_resumed();
    a_thread_may_end_anywhere();
    a_simple_thread_closes_its_handle();
    each_thread_has_its_own_values();
    it_is_made_once();
    one_of_the_threads_initialises_it();
    several_threads_may_try_and_the_first_wins();
    return finish();
}
