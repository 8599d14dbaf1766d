yes:
  test.succeed_with_changes:
    - onlyif: 'true'
no:
  test.succeed_with_changes:
    - onlyif: 'false'
list:
  test.succeed_with_changes:
    - onlyif:
      - 'true'
      - 'false'
