/* A library that does not know of this one, and closes a descriptor. */
#include <unistd.h>

int close_elsewhere(int descriptor);

int close_elsewhere(int descriptor)
{
    return close(descriptor);
}
