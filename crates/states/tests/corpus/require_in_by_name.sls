one:
  test.fail_without_changes:
    - require_in:
      - test: the name
two:
  test.nop:
    - name: the name
