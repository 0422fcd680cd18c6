/* gcc's unwinder finds unwind tables through glibc's _dl_find_object, which musl lacks. This is that function over
 * dl_iterate_phdr, for the static musl build with std from source (rustup's std brings LLVM's unwinder instead). */
#define _GNU_SOURCE
#include <link.h>
#include <pthread.h>
#include <stdint.h>

/* The unwinder refers to these weakly, and a weak reference takes nothing out of a static libc: ask for them here. */
__attribute__((used)) static void *const needed[] = {
    (void *)pthread_once,        (void *)pthread_key_create,  (void *)pthread_getspecific,
    (void *)pthread_setspecific, (void *)pthread_mutex_lock,  (void *)pthread_mutex_unlock,
};

/* glibc's struct dl_find_object, from <dlfcn.h> of 2.35 and later. */
struct found {
    unsigned long long flags;
    void *map_start, *map_end;
    struct link_map *link_map;
    void *eh_frame;
    unsigned long long reserved[7];
};

struct search {
    uintptr_t pc;
    struct found *found;
};

static int visit(struct dl_phdr_info *info, size_t size, void *data) {
    struct search *search = data;
    void *eh_frame = 0;
    int holds_pc = 0;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + header->p_vaddr;
        if (header->p_type == PT_GNU_EH_FRAME)
            eh_frame = (void *)start;
        if (header->p_type == PT_LOAD && search->pc - start < header->p_memsz) {
            holds_pc = 1;
            search->found->map_start = (void *)start;
            search->found->map_end = (void *)(start + header->p_memsz);
        }
    }
    search->found->eh_frame = eh_frame;
    return holds_pc && eh_frame;
}

int _dl_find_object(void *pc, struct found *found) {
    struct search search = {(uintptr_t)pc, found};
    found->flags = 0;
    found->link_map = 0;
    return dl_iterate_phdr(visit, &search) ? 0 : -1;
}
