base:
  '*':
    - common
    - sites
