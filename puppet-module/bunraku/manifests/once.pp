# @summary Has an application initialised once for the whole fleet, however many hosts ask.
#
# On each host that has an instance of the application; the deploy host
# collects what they export:
#
#     Exec <<| tag == 'bunraku_once' |>>
#
# `bunraku stat` says whether there is anything to do, and `bunraku init` does
# it: of several that start at the same moment, one does, and the others wait
# and end as it did. A failing init fails the run.
#
# @param app
#   The application.
# @param file
#   The definition, as a file on the host that carries it out. Without it, the
#   definition is the one that the server has.
# @param export
#   Export the resource for the deploy host. Without it, this host does it.
# @param wait
#   How long to wait for somebody else who is doing it.
# @param path
#   Where `bunraku` is looked for.
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
    onlyif  => [['bunraku', 'stat', $app] + $definition],
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
