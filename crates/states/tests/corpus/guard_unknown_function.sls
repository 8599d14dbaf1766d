a:
  test.succeed_with_changes:
    - onlyif:
      - fun: nowhere.nothing
b:
  test.succeed_with_changes:
    - unless:
      - fun: nowhere.nothing
c:
  test.succeed_with_changes:
    - onlyif:
      - fun: pkg.version
        args: [surely-not-installed]
d:
  test.succeed_with_changes:
    - onlyif:
      - fun: cmd.run
        args: [echo yes]
e:
  test.succeed_with_changes:
    - onlyif:
      - fun: cmd.run
        args: ['true']
f:
  test.succeed_with_changes:
    - unless:
      - fun: cmd.has_exec
        args: [surely-not-installed]
g:
  test.nop:
    - colour: red
