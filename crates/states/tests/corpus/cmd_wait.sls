changed: test.succeed_with_changes
waits and runs:
  cmd.wait:
    - name: echo waited
    - watch:
      - test: changed
only waits:
  cmd.wait:
    - name: echo never
