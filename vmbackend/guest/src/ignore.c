/* Patterns of names to leave out, in the syntax of gitignore: the last one that matches decides, `!` takes back, a slash at the
 * end wants a folder, one before it binds the pattern to the root, `**` stands for any number of folders.
 */
#include "guest.h"

#include <ctype.h>
#include <string.h>

#define PATTERN_SIZE 1024

static bool in_named_class(const char *name, size_t size, unsigned char letter)
{
	static const struct {
		const char *name;
		int (*is)(int);
	} classes[] = {{"alnum", isalnum}, {"alpha", isalpha}, {"blank", isblank}, {"cntrl", iscntrl}, {"digit", isdigit},
		       {"graph", isgraph}, {"lower", islower}, {"print", isprint}, {"punct", ispunct}, {"space", isspace},
		       {"upper", isupper}, {"xdigit", isxdigit}};
	for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
		if (strlen(classes[i].name) == size && !strncmp(classes[i].name, name, size))
			return classes[i].is(letter);
	return false;
}

/* One element of a bracket expression; moves *PLACE behind it. */
static bool in_element(const char **place, unsigned char letter)
{
	const char *text = *place, *end;
	if (text[0] == '[' && text[1] == ':' && (end = strstr(text + 2, ":]"))) {
		*place = end + 2;
		return in_named_class(text + 2, (size_t)(end - text - 2), letter);
	}
	text += *text == '\\' && text[1];
	unsigned char first = (unsigned char)*text++, last = first;
	if (text[0] == '-' && text[1] && text[1] != ']') {
		text++;
		text += *text == '\\' && text[1];
		last = (unsigned char)*text++;
	}
	*place = text;
	return letter >= first && letter <= last;
}

/* PLACE is behind the opening bracket. NULL: no match, or no closing bracket. Else what follows the expression. */
static const char *match_bracket(const char *place, unsigned char letter)
{
	bool negated = *place == '!' || *place == '^', found = false;
	place += negated;
	for (bool first = true; *place && (first || *place != ']'); first = false)
		found = in_element(&place, letter) || found;
	return *place == ']' && found != negated ? place + 1 : NULL;
}

/* One element of the pattern, which is no asterisk; moves *PATTERN behind it where it stands for LETTER. */
static bool match_one(const char **pattern, char letter)
{
	const char *place = *pattern;
	if (*place == '[') {
		place = letter == '/' ? NULL : match_bracket(place + 1, (unsigned char)letter);
		*pattern = place ? place : *pattern;
		return place;
	}
	if (*place == '?') {
		*pattern = place + 1;
		return letter != '/';
	}
	place += *place == '\\' && place[1];
	*pattern = place + 1;
	return *place == letter;
}

/* Where to go on when what follows an asterisk does not match: only the last one of each kind can help. An asterisk stays
 * in its folder, so that one before it would stop at the same slash; the folders of a double one may be any. */
struct retry {
	const char *pattern, *text; /* behind the asterisks; what they stand for ends here. NULL: there was none */
};

/* Moves *PATTERN behind asterisks. False for two at its end, which stand for all that is left. */
static bool begin_asterisks(const char **pattern, const char *start, const char *text, struct retry *name, struct retry *folders)
{
	const char *rest = *pattern;
	while (*rest == '*')
		rest++;
	bool alone = rest - *pattern == 2 && (*pattern == start || (*pattern)[-1] == '/');
	if (alone && !*rest)
		return false;
	if (alone && *rest == '/') { /* any number of folders, at first none */
		*folders = (struct retry){++rest, text};
		*name = (struct retry){0};
	} else {
		*name = (struct retry){rest, text};
	}
	*pattern = rest;
	return true;
}

static bool try_again(const char **pattern, const char **text, struct retry *name, struct retry *folders)
{
	struct retry *retry = name;
	const char *slash;
	if (name->pattern && *name->text && *name->text != '/') {
		name->text++;
	} else if (folders->pattern && (slash = strchr(folders->text, '/'))) {
		folders->text = slash + 1;
		*name = (struct retry){0};
		retry = folders;
	} else {
		return false;
	}
	*pattern = retry->pattern;
	*text = retry->text;
	return true;
}

static bool match(const char *pattern, const char *text)
{
	const char *start = pattern;
	struct retry name = {0}, folders = {0};
	while (*pattern || *text) {
		if (*pattern == '*') {
			if (!begin_asterisks(&pattern, start, text, &name, &folders))
				return *text;
		} else if (*pattern && *text && match_one(&pattern, *text)) {
			text++;
		} else if (!try_again(&pattern, &text, &name, &folders)) {
			return false;
		}
	}
	return true;
}

/* Trailing blanks count only after a backslash. */
static size_t length_of(const char *pattern)
{
	size_t size = strlen(pattern);
	while (size && pattern[size - 1] == ' ' && !(size > 1 && pattern[size - 2] == '\\'))
		size--;
	return size;
}

static bool pattern_matches(const char *given, const char *path, bool folder)
{
	char pattern[PATTERN_SIZE];
	size_t size = length_of(given);
	bool of_folders = size && given[size - 1] == '/';
	if (!size || size >= sizeof pattern || (of_folders && !folder))
		return false;
	memcpy(pattern, given, size);
	pattern[size - of_folders] = 0;
	const char *slash = strchr(pattern, '/') ? NULL : strrchr(path, '/');
	const char *start = pattern + (*pattern == '/');
	return *start && match(start, slash ? slash + 1 : path);
}

bool is_ignored(char *const *patterns, const char *path, bool folder)
{
	bool ignored = false;
	for (; *patterns; patterns++) {
		bool back = **patterns == '!';
		if (**patterns != '#' && pattern_matches(*patterns + back, path, folder))
			ignored = !back;
	}
	return ignored;
}
