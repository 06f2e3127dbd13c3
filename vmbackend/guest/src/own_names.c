/* Names that the platform gives to what it keeps for a moment in the user's folders. They are in no event and in no listing. */
#include "guest.h"

#include <string.h>

#define HEX "0123456789abcdef"
#define DIGITS 16 /* with fewer a user's own name would be hidden */

static bool has_form(const char *name, const char *prefix)
{
	size_t size = strlen(prefix);
	return !strncmp(name, prefix, size) && strlen(name + size) == DIGITS && strspn(name + size, HEX) == DIGITS;
}

/* transfer.py */
bool is_partial(const char *name)
{
	return has_form(name, ".partial-");
}

/* ask.c, in /dev/shm */
bool is_ask_folder(const char *name)
{
	return has_form(name, ASK_PREFIX);
}

/* Also those of sftp.py, which are in /dev/shm. */
bool is_own_name(const char *name)
{
	return is_partial(name) || is_ask_folder(name) || has_form(name, ".files-");
}
