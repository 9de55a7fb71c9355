// Stands before the C library in a process: socket() fails with the number in the file that FAULT_SOCKET names, as
// long as there is one, and the wall clock is off by as many seconds as the file that FAULT_CLOCK names says.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static long number_in(const char *variable) {
  const char *path = getenv(variable);
  if (path == NULL) return 0;
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  char text[32];
  long length = read(file, text, sizeof text - 1);
  close(file);
  if (length <= 0) return 0;
  text[length] = 0;
  return atol(text);
}

int socket(int domain, int type, int protocol) {
  static int (*real)(int, int, int);
  if (real == NULL) real = (int (*)(int, int, int))dlsym(RTLD_NEXT, "socket");
  int fault = (int)number_in("FAULT_SOCKET");
  if (fault != 0 && (type & 0xf) == SOCK_DGRAM) {
    errno = fault;
    return -1;
  }
  return real(domain, type, protocol);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
  static int (*real)(clockid_t, struct timespec *);
  if (real == NULL) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  int result = real(clock, time);
  if (result == 0 && clock == CLOCK_REALTIME) time->tv_sec += number_in("FAULT_CLOCK");
  return result;
}
