# @summary Initialises an application once for the whole fleet, however many hosts ask.
#
# Declare it on each host with an instance of the application. The deploy host
# collects the exported resources:
#
#     Exec <<| tag == 'bunraku_once' |>>
#
# `bunraku stat` tells whether there is anything to do, and `bunraku init` does
# it. If several hosts start at the same time, one runs the task, and the others
# wait and end with its result. If the task fails, the run fails.
#
# @param app
#   The application.
# @param file
#   The definition, as a file on the host that runs the task. Without it, the
#   server's definition is used.
# @param export
#   Export the resource for the deploy host. If false, this host runs the task.
# @param wait
#   How long to wait if another host is running the task.
# @param path
#   Where to look for `bunraku`.
define bunraku::once (
  Pattern[/\A[A-Za-z0-9_][A-Za-z0-9._-]*\z/] $app = $title,
  Optional[Pattern[/\A\//]] $file = undef,
  Boolean $export = true,
  Pattern[/\A\d+[smhd]\z/] $wait = '1h',
  Array[String[1], 1] $path = ['/usr/local/bin', '/usr/bin', '/bin'],
) {
  $definition = $file ? {
    undef   => [],
    default => ['-f', $file],
  }
  $attributes = {
    command => ['bunraku', 'init', $app, "--wait=${wait}"] + $definition,
    # After a failure, `init` runs again only to fail with what is known: the run shows it.
    onlyif  => [['bunraku', 'stat', $app, '--or-failed'] + $definition],
    path    => $path,
    timeout => 0,
    tag     => 'bunraku_once',
  }
  if $export {
    @@exec { "${title} ${facts['networking']['hostname']} bunraku init":
      * => $attributes,
    }
  } else {
    exec { "${title} ${facts['networking']['hostname']} bunraku init":
      * => $attributes,
    }
  }
}
