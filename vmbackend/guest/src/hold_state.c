#include "hold_state.h"

#include "guest.h"

struct stream *streams[MAX_STREAMS];
size_t stream_count;
uint64_t instance;
struct terminal *terminals[MAX_TERMINALS];
size_t terminal_count;
size_t buffer_size;
long linger_ms;

/* Not in the file that uses it: the tests have another one. */
const char *task_folder(void)
{
	return KIT "/data/tasks";
}
