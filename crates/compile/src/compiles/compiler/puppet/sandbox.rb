# frozen_string_literal: true

# Confines this process before it runs any code from a repository: read access
# to the given paths only, no writes, no programs, no network, no signals to
# other processes, and a limit on memory. Everything is inherited by threads
# and cannot be undone, so it must come before anything starts a thread.
#
# Absent on purpose: limits on time. The server ends a process that is late, and
# `end_with_parent` one whose server is gone.
module Sandbox
  class Unavailable < StandardError; end

  # Syscall numbers. Both machines share those from 424 on.
  NUMBERS = {
    'x86_64' => {
      arch: 0xC000003E, prctl: 157, seccomp: 317, capset: 126,
      execve: 59, execveat: 322, fork: 57, vfork: 58, clone: 56, kill: 62, tgkill: 234, prlimit64: 302,
      refused: {
        socket: 41, connect: 42, bind: 49, sendto: 44, sendmsg: 46, ptrace: 101, tkill: 200, setpgid: 109, setsid: 112,
        setrlimit: 160, rt_sigqueueinfo: 129, rt_tgsigqueueinfo: 297, process_vm_readv: 310, process_vm_writev: 311,
        mount: 165, umount2: 166, pivot_root: 155, chroot: 161, unshare: 272, setns: 308, bpf: 321,
        perf_event_open: 298, userfaultfd: 323, keyctl: 250, add_key: 248, request_key: 249, reboot: 169,
        chmod: 90, fchmod: 91, fchmodat: 268, chown: 92, fchown: 93, lchown: 94, fchownat: 260,
        setxattr: 188, utimensat: 280, utimes: 235, shmget: 29, msgget: 68
      }
    },
    'aarch64' => {
      arch: 0xC00000B7, prctl: 167, seccomp: 277, capset: 91,
      execve: 221, execveat: 281, clone: 220, kill: 129, tgkill: 131, prlimit64: 261,
      refused: {
        socket: 198, connect: 203, bind: 200, sendto: 206, sendmsg: 211, ptrace: 117, tkill: 130, setpgid: 154,
        setsid: 157, setrlimit: 164, rt_sigqueueinfo: 138, rt_tgsigqueueinfo: 240, process_vm_readv: 270,
        process_vm_writev: 271, mount: 40, umount2: 39, pivot_root: 41, chroot: 51, unshare: 97, setns: 268, bpf: 280,
        perf_event_open: 241, userfaultfd: 282, keyctl: 219, add_key: 217, request_key: 218, reboot: 142,
        fchmod: 52, fchmodat: 53, fchown: 55, fchownat: 54, setxattr: 5, utimensat: 88, shmget: 194, msgget: 186
      }
    }
  }.freeze
  SHARED = { pidfd_send_signal: 424, io_uring_setup: 425, pidfd_open: 434, fchmodat2: 452 }.freeze
  CLONE3 = 435
  LANDLOCK_CREATE = 444
  LANDLOCK_ADD = 445
  LANDLOCK_RESTRICT = 446

  EXECUTE = 1 << 0
  WRITE_FILE = 1 << 1
  READ_FILE = 1 << 2
  READ_DIRECTORY = 1 << 3
  O_PATH = 0o10000000

  module_function

  # With `programs`, code may also run the programs that it can read.
  def enter(read:, memory:, programs: false)
    numbers = NUMBERS[RbConfig::CONFIG['host_cpu']]
    raise Unavailable, "no sandbox for the processor #{RbConfig::CONFIG['host_cpu']}" unless numbers

    limit(memory)
    drop_capabilities(numbers)
    call(numbers[:prctl], 38, 1, 0, 0, 0)
    confine_files(read, programs: programs)
    confine_calls(numbers, programs: programs)
  end

  # Ends this process when the server that started it is gone. A compile that
  # never ends would otherwise go on for ever after `kill -9` of the server.
  def end_with_parent
    parent = Process.ppid
    Thread.new do
      loop do
        sleep 1
        exit!(1) unless Process.ppid == parent
      end
    end
  end

  def limit(memory)
    Process.setrlimit(Process::RLIMIT_DATA, memory, memory)
    Process.setrlimit(Process::RLIMIT_CORE, 0, 0)
  end

  # Root keeps one capability, to read files of others: keys often belong to
  # Puppet's user. The paths that are readable at all stay the same.
  def drop_capabilities(numbers)
    kept = Process.euid.zero? ? 1 << 2 : 0
    call(numbers[:capset], [0x20080522, 0].pack('LL'), [kept, kept, 0, 0, 0, 0].pack('L6'))
  end

  def confine_files(paths, programs: false)
    version = syscall_or_nil(LANDLOCK_CREATE, 0, 0, 1)
    raise Unavailable, 'the kernel has no Landlock (Linux 5.13 or newer, enabled with lsm=landlock)' unless version

    files = (1 << 13) - 1
    files |= 1 << 13 if version >= 2
    files |= 1 << 14 if version >= 3
    files |= 1 << 15 if version >= 5
    attributes = [files, version >= 4 ? 3 : 0, version >= 6 ? 3 : 0].pack('QQQ')
    size = version >= 6 ? 24 : (version >= 4 ? 16 : 8)
    rules = call(LANDLOCK_CREATE, attributes, size, 0)
    paths.each { |path| allow(rules, path, programs ? EXECUTE : 0) }
    # Shell scripts write to it.
    allow(rules, '/dev/null', WRITE_FILE) if programs
    call(LANDLOCK_RESTRICT, rules, 0)
    IO.for_fd(rules).close
  end

  def allow(rules, path, more)
    descriptor = IO.sysopen(path, O_PATH)
    access = File.directory?(path) ? READ_FILE | READ_DIRECTORY : READ_FILE
    access |= more
    call(LANDLOCK_ADD, rules, 1, [access, descriptor].pack('Ql'), 0)
    IO.for_fd(descriptor, autoclose: true).close
  rescue Errno::ENOENT
    nil
  end

  # A classic BPF program over the number and first arguments of each call.
  def confine_calls(numbers, programs: false)
    program = filter(numbers, programs)
    packed = program.map { |code, yes, no, value| [code, yes, no, value].pack('SCCL') }.join
    call(numbers[:seccomp], 1, 0, [program.size, packed].pack('Sx6p'))
  end

  LOAD = 0x20
  EQUAL = 0x15
  AT_LEAST = 0x35
  ANY_BIT = 0x45
  RETURN = 0x06
  ALLOW = 0x7FFF0000
  REFUSE = 0x00050000 | Errno::EPERM::Errno
  MISSING = 0x00050000 | Errno::ENOSYS::Errno
  CLONE_THREAD = 0x10000

  def filter(numbers, may_start)
    pid = Process.pid
    answer = ->(value) { [RETURN, 0, 0, value] }
    program = [[LOAD, 0, 0, 4], [EQUAL, 1, 0, numbers[:arch]], answer[REFUSE],
               [LOAD, 0, 0, 0], [AT_LEAST, 0, 1, 0x40000000], answer[REFUSE]]
    unless may_start
      # Threads, and no other processes.
      program += [[EQUAL, 0, 4, numbers[:clone]], [LOAD, 0, 0, 16], [ANY_BIT, 0, 1, CLONE_THREAD], answer[ALLOW], answer[REFUSE]]
    end
    # Its flags cannot be examined. Without it, programs use clone.
    program += [[EQUAL, 0, 1, CLONE3], answer[MISSING]]
    # Signals to this process only.
    [numbers[:kill], numbers[:tgkill]].each do |number|
      program += [[EQUAL, 0, 4, number], [LOAD, 0, 0, 16], [EQUAL, 0, 1, pid], answer[ALLOW], answer[REFUSE]]
    end
    # Limits may be read.
    program += [[EQUAL, 0, 4, numbers[:prlimit64]], [LOAD, 0, 0, 32], [EQUAL, 0, 1, 0], answer[ALLOW], answer[REFUSE]]
    programs = may_start ? [] : numbers.values_at(:execve, :execveat, :fork, :vfork).compact
    (programs + numbers[:refused].values + SHARED.values).each do |number|
      program += [[EQUAL, 0, 1, number], answer[REFUSE]]
    end
    program << answer[ALLOW]
  end

  def call(*arguments)
    # `syscall` is deprecated for being platform-bound, which is the point here.
    verbose, $VERBOSE = $VERBOSE, nil
    # It takes no strings with zero bytes, so they go by address.
    addresses = arguments.map { |one| one.is_a?(String) ? [one].pack('p').unpack1('J') : one }
    Kernel.syscall(*addresses)
  ensure
    $VERBOSE = verbose
  end

  def syscall_or_nil(*arguments)
    call(*arguments)
  rescue SystemCallError
    nil
  end
end
