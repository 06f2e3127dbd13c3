/* Names that the platform gives to what it keeps for a moment in the user's folders. They are in no event and in no listing. */
#include "guest.h"

#include <string.h>

#define HEX "0123456789abcdef"
#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

static bool has_form(const char *name, const char *prefix, const char *letters, size_t count)
{
	size_t size = strlen(prefix);
	return !strncmp(name, prefix, size) && strlen(name + size) == count && strspn(name + size, letters) == count;
}

/* transfer.py */
bool is_partial(const char *name)
{
	return has_form(name, ".partial-", HEX, 16);
}

/* Also those of sftp.py and ask.c, which are in /dev/shm. */
bool is_own_name(const char *name)
{
	return is_partial(name) || has_form(name, ".files-", HEX, 16) || has_form(name, ".ask-", LETTERS, 6);
}
