one:
  test.nop:
    - name: |
        first line
        second line
two:
  test.nop:
    - name: >
        folded
        text
