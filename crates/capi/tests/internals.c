/* Each function that the headers of compat/include call. Programs do not call them. */
#include <winsock2.h>

#include <pthread.h>

#include "check.h"

static uint32_t word;

static void *changes_the_word(void *unused)
{
    (void)unused;
    __atomic_store_n(&word, 1, __ATOMIC_SEQ_CST);
    cp_wake_word(&word, 1);
    return NULL;
}

static void *has_another_number(void *number)
{
    CHECK(cp_thread_id() != *(uint32_t *)number);
    return NULL;
}

int main(void)
{
    const void *module = cp_module("WS2_32.dll");
    cp_handle handle;
    pthread_t thread;
    uint32_t own = cp_thread_id();
    uint64_t before = cp_clock();

    alarm(1800);
    CHECK(module != NULL && module == cp_module("ws2_32"));
    CHECK(cp_function(module, "ProcessSocketNotifications") != NULL);
    CHECK_FALSE(cp_function(module, "Nothing") != NULL, CP_ERROR_FUNCTION_NOT_FOUND);
    CHECK_FALSE(cp_module("nothing.dll") != NULL, CP_ERROR_MODULE_NOT_FOUND);

    handle = cp_new_event(0, 1);
    CHECK(handle != NULL);
    CHECK_FALSE(cp_post(handle, 0, 0, NULL), CP_ERROR_INVALID_HANDLE); /* it is not a port */
    CHECK_FALSE(cp_release_semaphore(handle, 1, NULL), CP_ERROR_INVALID_HANDLE);
    CHECK_IS(cp_waiting(handle), 0);
    CHECK_IS(cp_wait_for(&handle, 1, 0, SOON), 0);
    CHECK_IS(cp_wait_for(&handle, 1, 0, 0), CP_ERROR_TIMEOUT);
    CHECK(cp_close_handle(handle));
    CHECK_FALSE(cp_set_event(handle), CP_ERROR_INVALID_HANDLE);
    CHECK_FALSE(cp_close_handle(handle), CP_ERROR_INVALID_HANDLE);
    CHECK_IS(cp_waiting(handle), 0);

    CHECK_IS(cp_wait_word(&word, 1, SOON), CP_SUCCESS); /* it is not that: no wait */
    CHECK_IS(pthread_create(&thread, NULL, changes_the_word, NULL), 0);
    while (__atomic_load_n(&word, __ATOMIC_SEQ_CST) == 0) {
        CHECK_IS(cp_wait_word(&word, 0, SOON), CP_SUCCESS);
    }
    CHECK_IS(pthread_join(thread, NULL), 0);
    while (cp_wait_word(&word, 1, 5) != CP_ERROR_TIMEOUT) {
    }
    CHECK(cp_clock() - before >= 5000000u);
    CHECK(own != 0 && own == cp_thread_id());
    CHECK_IS(pthread_create(&thread, NULL, has_another_number, &own), 0);
    CHECK_IS(pthread_join(thread, NULL), 0);

    cp_startup();
    CHECK_IS(cp_cleanup(), 0);
    CHECK_IS(cp_cleanup(), -1);
    CHECK_IS(cp_last_error(), WSANOTINITIALISED);
    return 0;
}
