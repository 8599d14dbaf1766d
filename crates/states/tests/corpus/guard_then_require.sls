skipped:
  test.succeed_with_changes:
    - onlyif: 'false'
after:
  test.nop:
    - require:
      - test: skipped
onchange:
  test.nop:
    - onchanges:
      - test: skipped
