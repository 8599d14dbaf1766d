one:
  test.succeed_with_changes: []
  cmd.run:
    - name: 'true'
two:
  test.nop:
    - require:
      - cmd: one
      - test: one
