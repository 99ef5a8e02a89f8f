/* What the test programs of operations on files share. To be included after "check.h". */
#ifndef FILES_H
#define FILES_H

/* Whether a ring performs operations on files: the environment requests or allows it, and the
 * system has one. Otherwise threads do, and an operation that a thread has started cannot be
 * cancelled. */
static inline int has_ring(void)
{
    static int known = -1;
    if (known < 0) {
        const char *engine = getenv("COMPLETION_PORT_FILES");
        unsigned char parameters[120]; /* struct io_uring_params, which not all systems have a header for */
        int ring = -1;
        memset(parameters, 0, sizeof parameters);
        if (engine == NULL || strcmp(engine, "threads") != 0)
            ring = (int)syscall(425 /* SYS_io_uring_setup */, 1, parameters);
        known = ring >= 0;
        if (known)
            close(ring);
    }
    return known;
}

/* Whether operations in progress can be cancelled. If not, prints the skipped claim. */
static inline int ends_early(const char *claim)
{
    if (!has_ring())
        printf("SKIPPED %s: threads carry operations on files out, which cannot be cancelled\n", claim);
    return has_ring();
}

#endif
